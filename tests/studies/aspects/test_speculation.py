"""Speculation of a scenario: what is drawn, what a report says of it, and that both clocks decide the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scenarios
from sim.measured_acceptance import MeasuredAcceptance
from studies import execute, simulate
from studies.acceptance import store
from studies.aspects.speculation import acceptance_of, break_even, tokens_per_step
from studies.reports.run_tables import about, every
from studies.results import load, save
from studies.run import replayed
from studies.workload_files import load_workload

TEXT = """
name: drafts
model: qwen3-tiny
hardware: cpu
engine: {max_model_len: 256, max_num_seqs: 4, max_num_batched_tokens: 64, num_gpu_blocks: 80, speculation: %s}
workload: {requests: 6, arrivals: {process: poisson, rate: 20}, input: 24, output: 10}
"""
NGRAM = "{method: ngram, k: 3, acceptance: 0.6, found: 0.8}"
DRAFT = "{method: draft, k: 3, acceptance: {mean: 0.6, concentration: 5}, draft_cost: 0.1}"


def scenario(speculation: str) -> scenarios.Scenario:
    return scenarios.loads(TEXT % speculation, source="test.yaml", base=Path.cwd())


def test_a_simulation_and_an_execution_accept_the_same_drafts() -> None:
    simulated, executed = simulate(scenario(NGRAM)), execute(scenario(NGRAM))
    for run in (simulated, executed):
        assert run.info["speculation"]["accepted"] > 0
        assert run.summary["target_steps_per_output_token"] < 1
        assert replayed(run, run.workload).identical
    by_request = [
        {int(request): run.records.drafts[run.records.drafts[:, 2] == request][:, 4].sum() for request in range(6)}
        for run in (simulated, executed)
    ]
    assert by_request[0] == by_request[1]


def test_a_report_says_what_became_of_drafts_and_from_where_on_they_pay() -> None:
    run = simulate(scenario(DRAFT))
    table = next(table for table in every(run) if table.title == "Speculation")
    cells = dict(table.rows)
    assert cells["proposed by"] == "draft, 3 at a time"
    assert cells["break-even acceptance"].endswith("%") or cells["break-even acceptance"] == "none does"
    assert run.info["speculation"]["break_even"]["slowdown"] > 1


def test_without_speculation_nothing_is_said_of_it() -> None:
    run = simulate("demo")
    assert run.info["speculation"] is None
    assert "Speculation" not in [table.title for table in every(run)]


def test_speculation_changes_no_drawn_length() -> None:
    with_drafts, without = scenarios.generate(scenario(NGRAM)), scenarios.generate(scenario("null"))
    for name in ("arrival_ns", "prompt_tokens", "output_tokens"):
        assert np.array_equal(getattr(with_drafts, name), getattr(without, name))


def test_the_break_even_yields_as_many_tokens_as_plain_steps() -> None:
    assert break_even(0.9, 4) == 0.0
    assert break_even(5.5, 4) is None
    for slowdown in (1.1, 1.5, 3.0):
        assert tokens_per_step(break_even(slowdown, 4) or 0.0, 4) == pytest.approx(slowdown)


def test_acceptance_that_nobody_stated_comes_from_a_profile_or_is_asked_for() -> None:
    silent = scenario("{method: ngram, k: 3}")
    workload = scenarios.generate(silent)
    with pytest.raises(scenarios.InputError, match=r"engine.speculation.acceptance: .*servetwin acceptance"):
        acceptance_of(silent, workload)


def test_tenants_have_their_own_acceptance_and_share_the_numbers() -> None:
    text = TEXT.replace("output: 10}", "output: 10, tenants: [{name: a}, {name: b}]}")
    rates = {}
    for share in ("0.1", "0.9"):
        given = "{method: ngram, acceptance: {mean: 0.5, concentration: 4}, by_tenant: {b: SHARE}}"
        one = scenarios.loads(text % given.replace("SHARE", share), source="test.yaml", base=Path.cwd())
        workload = scenarios.generate(one)
        rates[share] = acceptance_of(one, workload).rates  # type: ignore[union-attr]
    of_a = [i for i, code in enumerate(workload.tenant) if workload.tenants[code] == "a"]
    assert of_a
    assert all(rates["0.1"][i] == rates["0.9"][i] for i in of_a)
    assert {rates["0.9"][i] for i in range(6) if i not in of_a} == {(0.9,)}


def test_a_measurement_replaces_an_older_one_of_its_kind() -> None:
    from sim.profiles import load_profile

    profile = load_profile("cpu-avx2-qwen3-tiny")
    one = MeasuredAcceptance(
        method="ngram", k=3, model=profile.model, text="t", per_position=(0.5, None, None), mean=0.5, concentration=3.0,
        found=0.4, steps_per_token=0.9, requests=4, verifications=20,
    )  # fmt: skip
    twice = store(one.model_copy(update={"mean": 0.6}), store(one, profile))
    assert [m.mean for m in twice.acceptance] == [0.6]
    assert twice.hash() != profile.hash()
    with pytest.raises(scenarios.InputError, match="drafts were measured for other"):
        store(one.model_copy(update={"model": "other"}), profile)


def test_a_saved_run_keeps_its_drafts_and_replays(tmp_path: Path) -> None:
    run = simulate(scenario(NGRAM))
    loaded = load(save(run, tmp_path / "drafts"))
    assert (loaded.records.drafts == run.records.drafts).all()
    assert loaded.summary["spec_decode_acceptance_rate"] == run.summary["spec_decode_acceptance_rate"]
    assert replayed(loaded, load_workload(tmp_path / "drafts")).identical


def test_results_of_before_there_were_drafts_are_read(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    folder = save(simulate(scenario("null")), tmp_path / "plain")
    assert not (folder / "drafts.parquet").exists()
    steps = pq.read_table(folder / "steps.parquet")
    pq.write_table(
        steps.drop_columns(["verify_sequences", "draft_tokens", "accepted_tokens"]), folder / "steps.parquet"
    )
    assert load(folder).records.steps["draft_tokens"].tolist() == [0] * len(steps)


def test_drafting_is_a_part_of_busy_time() -> None:
    terms = simulate(scenario(DRAFT)).info["binding"]["terms"]
    assert 0 < terms["drafting"] < 0.5
    assert sum(terms.values()) == pytest.approx(1.0)
    assert "drafting" not in simulate(scenario(NGRAM)).info["binding"]["terms"]


def test_settings_that_are_resolved_otherwise_are_said() -> None:
    def about_of(hardware: str, speculation: str) -> list[str]:
        text = TEXT.replace("hardware: cpu", f"hardware: {hardware}").replace(
            "{max_model_len", "{async_scheduling: true, max_model_len"
        )
        one = scenarios.loads(text % speculation, source="test.yaml", base=Path.cwd())
        run = simulate(one)
        assert run.info["engine"]["async_scheduling"] == (not run.info["resolved"])
        return [line for line in about(run) if line.startswith("async")]

    assert about_of("cpu", "null") == ["async_scheduling: off, since cpu is a CPU"]
    assert about_of("H100", NGRAM) == ["async_scheduling: off, since n-gram drafts are looked up in text that is known"]
    assert about_of("H100", "null") == about_of("H100", DRAFT) == []


def test_the_measurement_of_the_nearest_k_is_used() -> None:
    from sim.profiles import load_profile

    profile = load_profile("cpu-avx2-qwen3-tiny")
    for k, mean in ((2, 0.2), (4, 0.999)):
        measured = MeasuredAcceptance(
            method="ngram", k=k, model=profile.model, text="t", per_position=(0.5,) * k, mean=mean, concentration=1e6,
            found=0.4, steps_per_token=0.9, requests=4, verifications=20,
        )  # fmt: skip
        profile = store(measured, profile)
    silent = scenario("{method: ngram, k: 3}"), scenario("{method: ngram, k: 5}")
    near = [acceptance_of(one, scenarios.generate(one), profile) for one in silent]
    assert [round(each.rates[0][0], 1) for each in near if each is not None] == [0.2, 1.0]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (f"speculation: {DRAFT}", r"engine.speculation.draft_cost: is for simulations"),
        ("dtype: fp8", r"engine.dtype: found fp8, but the CPU engine has float32, bfloat16, int8, int4 only"),
        ("kv_cache_dtype: float16", r"engine.kv_cache_dtype: found float16, but the CPU engine"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused_by_its_field(engine: str, message: str) -> None:
    asked = scenarios.loads(TEXT.replace("speculation: %s", engine), source="test.yaml", base=Path.cwd())
    with pytest.raises(scenarios.InputError, match=message):
        execute(asked)
