from __future__ import annotations

import json
import pkgutil

import numpy as np
import pytest

import scenarios
import studies
from scenarios.errors import InputError
from sim.profile import Coefficients, Profile
from sim.profile_cost import ProfileCost
from sim.profile_parts import Domain, Range, Source
from studies import compare, execute, results, simulate, validate
from studies.reports import run_tables, tables
from studies.reports.strict_json import dumps
from studies.run import replayed
from studies.validation import variants_of
from studies.workload_files import load_workload

SMALL = ["workload.requests=12", "workload.arrivals.rate=20", "workload.output=6"]
TINY = [
    "workload.requests=5",
    "workload.arrivals.rate=50",
    "workload.input=10",
    "workload.output=3",
    "engine.max_num_seqs=4",
]
TINY += ["workload.prompts.prefix_tokens=32", "engine.max_num_batched_tokens=16", "engine.max_model_len=128"]


@pytest.fixture(scope="module")
def scenario():
    return scenarios.load("demo", overrides=SMALL)


@pytest.fixture(scope="module")
def profile():
    """A profile with round numbers: 3 ms a step, 0.1 ms a token."""
    wide = Range(min=0, max=100_000)
    domain = Domain(
        tokens=wide, prefill_query=wide, prefill_context=wide, decode_sequences=wide, decode_context=wide, sampled=wide
    )
    return Profile(
        name="round", created="2025-01-01", source=Source(device="cpu", clock="cpu", threads=1), model="qwen3-tiny", dtype="float32",
        kv_dtype="float32", domain=domain, dense=((0, 3e6), (100, 13e6)), coefficients=Coefficients(), data_hash="none",
    )  # fmt: skip


def test_a_run_carries_all_that_is_needed_to_judge_it(scenario, profile):
    run = simulate(scenario, cost=ProfileCost(profile))
    assert run.summary["completed"] == 12
    assert run.info["scenario_hash"] == scenario.hash()[:16]
    assert run.info["profile_hash"] == profile.hash()
    assert {"servetwin", "python", "numpy"} <= set(run.info["versions"])
    assert run.info["binding"]["extrapolated"] == 0
    assert sum(run.info["binding"]["terms"].values()) == pytest.approx(1)


def test_objectives_are_judged_and_a_figure_that_the_sample_cannot_carry_judges_nothing(profile):
    texts = ["ttft_mean <= 1h", "tpot_mean <= 1ns", "ttft_p75 >= 1ns", "e2e_p99 <= 1h", "good_request_fraction >= 0.01"]
    stated = scenarios.load("demo", overrides=[*SMALL, f"objectives={json.dumps(texts)}"])
    run = simulate(stated, cost=ProfileCost(profile))
    assert [found["met"] for found in run.info["objectives"]] == [True, False, True, None, True]
    assert "p75_ttft_ms" in run.summary
    assert [row[2] for row in run_tables.objectives(run).rows] == ["met", "missed", "met", tables.DASH, "met"]
    assert results.document(run)["run"]["objectives"] == run.info["objectives"]


def test_a_profile_named_in_a_scenario_is_what_steps_cost(profile, tmp_path):
    path = profile.save(tmp_path / "p.json")
    alone = scenarios.load(
        "demo", overrides=[*SMALL, "workload.requests=1", "cost.source=profile", f"cost.profile={path}"]
    )
    assert simulate(alone).summary["mean_tpot_ms"] == pytest.approx(3.1)


def test_a_profile_of_another_model_is_refused(profile, tmp_path):
    path = profile.save(tmp_path / "p.json")
    other = ["model=Qwen3-0.6B", "cost.source=profile", f"cost.profile={path}"]
    other = scenarios.load("demo", overrides=[*SMALL, *other])
    for run in (simulate, lambda scenario: validate(scenario, profile=profile)):
        with pytest.raises(InputError, match=r"qwen3-tiny.*Qwen3-0\.6B"):
            run(other)


def test_shared_prefixes_survive_a_result_folder(scenario, tmp_path):
    run = simulate(scenario)
    results.save(run, tmp_path / "out")
    again = load_workload(tmp_path / "out")
    for i in range(len(again)):
        assert [n for _, n in again.prompt(i)] == [n for _, n in run.workload.prompt(i)]
    before = [key for i in range(12) for key, _ in run.workload.prompt(i)]
    after = [key for i in range(12) for key, _ in again.prompt(i)]
    pairs = list(zip(before, after, strict=True))
    assert len(set(before)) == len(set(after)) == len(set(pairs))


def test_six_variants_share_every_drawn_request(scenario):
    variants = variants_of(scenario)
    assert len(variants) == 6
    assert len({v.engine_config() for v in variants.values()}) == 6
    drawn = [scenarios.generate(v) for v in variants.values()]
    for other in drawn[1:]:
        np.testing.assert_array_equal(other.arrival_ns, drawn[0].arrival_ns)
        np.testing.assert_array_equal(other.prompt_tokens, drawn[0].prompt_tokens)


def test_variants_of_a_scenario_with_drafts_are_those_that_a_scenario_may_say() -> None:
    given = ["engine.speculation={method: ngram, acceptance: 0.5}"]
    variants = variants_of(scenarios.load("demo", overrides=given))
    assert list(variants) == ["chunked, prefix cache on", "chunked, prefix cache off"]
    for variant in variants.values():
        type(variant).model_validate(variant.model_dump(exclude_none=True))


def test_compared_scenarios_keep_their_own_columns(scenario):
    found = compare([scenario, scenario.model_copy(update={"name": "other"}), scenario])
    assert list(found.runs) == ["demo", "other", "demo (2)"]
    assert len(found.table().head) == 4
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(("arguments", "named"), [({"device": "tpu"}, "cpu"), ({"clock": "sundial"}, "wall")])
def test_a_device_or_clock_that_there_is_not_is_refused(scenario, arguments, named):
    with pytest.raises(InputError, match=named):
        execute(scenario, **arguments)


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_the_horizon_of_a_scenario_ends_its_execution_on_both_clocks(clock):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    late = ["workload.requests=2", "workload.arrivals={process: constant, rate: 0.001}", "horizon=50ms"]
    run = execute(scenarios.load("demo", overrides=[*TINY[2:], *late]), clock=clock)
    assert run.summary["submitted"] <= 1
    assert run.summary["never_sent"] >= 1


@pytest.mark.parametrize("horizon", ["1us", "200ms", "50s"])
def test_a_run_with_a_horizon_is_sent_again_up_to_there(horizon):
    """Also where it ends before the first request, or between two."""
    run = simulate(scenarios.load("demo", overrides=["workload.requests=20", f"horizon={horizon}"]))
    assert run.workload is not None
    report = replayed(run, run.workload)
    assert (report.identical, report.first_difference) == (True, None)


def test_a_profile_of_another_kind_of_run_is_refused(profile):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    real_time = profile.model_copy(update={"source": profile.source.model_copy(update={"clock": "wall"})})
    with pytest.raises(InputError, match="clock: measured with wall, but this run has cpu"):
        validate(scenarios.load("demo", overrides=TINY), profile=real_time)


def test_validation_keeps_its_layers_apart(profile, tmp_path):
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    seen: list[float] = []
    found = validate(
        scenarios.load("demo", overrides=TINY), repeats=2, profile=profile, progress=lambda _, part: seen.append(part)
    )
    assert seen == sorted(seen)
    assert found.schedule["identical"]
    assert found.schedule["steps"] == sum(len(run.records.steps["step"]) for run in found.executed) > 0
    document = json.loads(dumps(found.to_dict()))
    assert set(document["outcome"][0]) >= {"metric", "live", "simulated", "error", "noise"}
    for row in document["outcome"]:
        assert row["error"] == pytest.approx(row["simulated"] / row["live"] - 1)
        assert row["noise"] >= 0
    assert len(document["ranking"]["variants"]) == 6
    tau, pairs = document["ranking"]["kendall_tau"], document["ranking"]["pairs"]
    assert (tau is None) == (pairs == 0)
    assert document["cost"]["by_kind"]["all"]["steps"] == found.schedule["steps"]
    from studies.validation import write

    write(found, tmp_path / "out")
    assert (tmp_path / "out" / "report.html").stat().st_size > 4_000_000
    assert results.load(tmp_path / "out").info["way"] == "execute"


def test_a_machine_is_calibrated_between_executions():
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    one = scenarios.load("demo", overrides=TINY)
    found = validate(one, repeats=1, grid="quick", ranking=False)
    assert found.ranking is None
    assert found.predicted.info["profile_hash"] == found.profile.hash()
    assert found.profile.source.device == "cpu"
    assert [row.noise for row in found.outcome] == [None] * len(found.outcome)


def test_the_package_lists_what_it_offers_and_takes_names(tmp_path):
    asked = {
        "ask",
        "compare",
        "decide",
        "execute",
        "highest_load",
        "load_sweep",
        "replicate",
        "simulate",
        "sweep",
        "validate",
    }
    assert {"Run", "figures", "load", "perfetto", "save"} | asked == set(dir(studies))
    assert dir(studies) == sorted(studies.__all__)
    for name in dir(studies):
        assert getattr(studies, name) is not None
    # A module of the same name would take a function's place as soon as it is imported.
    modules = {found.name for found in pkgutil.iter_modules(studies.__path__)}
    assert modules & set(dir(studies)) == {"figures", "perfetto"}
    run = studies.simulate("demo")
    assert repr(run).startswith("<Run 'demo': simulated, 100 requests completed; mean_ttft_ms=")
    assert repr(studies.load(studies.save(run, tmp_path / "out"))) == repr(run)


def test_a_replica_of_several_devices_costs_as_many_and_is_simulated_only():
    changes = ["hardware=H100", "model=qwen3-tiny", "cost={source: roofline}", *SMALL]
    one, two = (scenarios.load("demo", overrides=[*changes, f"engine.tensor_parallel_size={n}"]) for n in (1, 2))
    runs = [simulate(scenario).summary for scenario in (one, two)]
    hours = [run["duration"] / 3600 for run in runs]
    assert runs[0]["usd_total"] == pytest.approx(3.0 * hours[0])
    assert runs[1]["usd_total"] == pytest.approx(2 * 3.0 * hours[1])
    with pytest.raises(InputError, match=r"engine\.tensor_parallel_size: found 2, but an execution has one device"):
        execute(two)
