"""Measured points as real closed loops: a handful end to end on made-up step costs, resuming, groups, filters, refusals."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.silicon import constants as silicon_constants
from calibration.silicon.constants import DATA_SHEET, Constants, applied
from calibration.silicon.points import Point, read_points
from calibration.silicon.scope import replicas_of
from scenarios.errors import InputError
from sim.operator_profile import Curve, Host
from sim.roofline import Roofline
from studies.silicon import replay as silicon_replay
from studies.silicon.replay import Job, Prediction, Store, replay, run_all, scenario_of
from studies.silicon.report import SiliconReport
from studies.silicon.validation import parsed, passes, validate
from tests.calibration.test_silicon import written
from tests.sim.test_operator_cost import profile as operator_profile

needs_tables = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="needs the extra `profiles`"
)
GAP = "source_file=/some/gap-analysis/x.csv; silicon_concurrency="


def points(folder: Path) -> list[Point]:
    """Two engines, two models, four configurations; one cannot be simulated."""
    rows = [
        {"silicon_data_source": f"{GAP}{clients}", "batch_size": str(clients), "osl": "16", **more}
        for clients, more in (
            (2, {}),
            (4, {}),
            (4, {"tp_size": "4"}),
            (2, {"model_path": "meta-llama/Llama-3.1-8B-Instruct", "backend": "sglang"}),
            (2, {"model_path": "deepseek-ai/DeepSeek-R1"}),
        )
    ]
    return read_points(written(folder, *rows))


def rooflined(jobs: Sequence[Job]) -> list[Prediction]:
    """The same replay on step costs that need no tables."""
    found = []
    for job in jobs:
        scenario, overhead = scenario_of(job.point)
        cost = Roofline(
            scenario.model, scenario.hardware, dtype=scenario.dtype, kv_dtype=scenario.kv_dtype,
            tensor_parallel_size=job.point.tensor_parallel,
        )  # fmt: skip
        found.append(replay(scenario, cost, overhead))
    return found


def test_a_point_is_a_closed_loop_of_ten_rounds_as_its_population_serves(tmp_path: Path) -> None:
    scenario, overhead = scenario_of(points(tmp_path)[1])
    arrivals = scenario.workload.arrivals
    assert arrivals is not None
    assert (arrivals.process, arrivals.concurrency) == ("closed_loop", 4)  # type: ignore[union-attr]
    assert scenario.workload.requests == 40
    assert scenario.engine_config().max_num_seqs == 4
    assert scenario.engine.tensor_parallel_size == 2
    assert overhead == 0


def test_engines_side_by_side_share_the_clients(tmp_path: Path) -> None:
    (point,) = read_points(written(tmp_path, {"silicon_data_source": f"{GAP}16", "batch_size": "4"}))
    assert replicas_of(point) == 4
    scenario, _ = scenario_of(point)
    assert scenario.replicas == 4
    assert scenario.workload.requests == 160
    assert scenario.engine_config().max_num_seqs == 4


def test_ttft_holds_the_first_burst_and_the_clients_own_time(tmp_path: Path) -> None:
    job = Job(points(tmp_path)[1], DATA_SHEET)
    (found,) = rooflined([job])
    scenario, _ = scenario_of(job.point)
    cost = Roofline(
        scenario.model, scenario.hardware, dtype=scenario.dtype, kv_dtype=scenario.kv_dtype, tensor_parallel_size=2
    )
    later = replay(scenario, cost, client_overhead=0.5)
    assert found.ttft is not None
    assert later.ttft == pytest.approx(found.ttft + 0.5)
    assert later.tpot == found.tpot


def test_what_is_known_is_not_simulated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silicon_replay, "_code", lambda: "one version")
    jobs = [Job(point, DATA_SHEET) for point in points(tmp_path)[:3]]
    first = run_all(jobs[:2], tmp_path / "out", processes=1, run=rooflined)
    asked: list[Job] = []

    def counted(some: Sequence[Job]) -> list[Prediction]:
        asked.extend(some)
        return rooflined(some)

    again = run_all(jobs, tmp_path / "out", processes=1, run=counted)
    assert again[:2] == first
    assert asked == jobs[2:]
    monkeypatch.setattr(silicon_replay, "_code", lambda: "another version")
    run_all(jobs[:1], tmp_path / "out", processes=1, run=counted)
    assert asked[-1] == jobs[0], "what another version of the code predicted is no longer known"


def test_a_line_that_an_interrupt_cut_short_is_ignored(tmp_path: Path) -> None:
    store = Store(tmp_path / "points.jsonl")
    store.add({"a": Prediction(1.0, 0.1)})
    with store.path.open("a") as file:
        file.write('{"key": "b", "ttft": 2.')
    store = Store(store.path)
    assert store.known == {"a": Prediction(1.0, 0.1)}
    store.add({"c": Prediction(3.0, 0.3)})
    assert Store(store.path).known.keys() == {"a", "c"}


def report(folder: Path, monkeypatch: pytest.MonkeyPatch, only: str | None = None) -> SiliconReport:
    monkeypatch.setattr(silicon_replay, "_code", lambda: "one version")
    points(folder)
    return validate(only=only, folder=folder / "out", processes=1, file=folder / "silicon_sample.csv", run=rooflined)


def test_every_point_is_in_a_group_or_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(tmp_path, monkeypatch).to_dict()
    assert sum(group["n"] for group in found["groups"]) == found["points"] == 4
    assert {"system", "engine", "half", "n", "mape_ttft", "mape_tpot"} <= found["groups"][0].keys()
    assert [(row["model"], row["points"]) for row in found["not_run"]] == [("DeepSeek-R1", 1)]
    assert "MLA" in found["not_run"][0]["why"]
    assert found["variants"].keys() == {"data sheet", "fitted"}
    assert {row["metric"] for row in found["outcome"]} <= {"mean_ttft_ms", "mean_tpot_ms"}


def test_errors_are_relative_to_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(tmp_path, monkeypatch, only="engine=vllm")
    made.predictions["fitted"] = [
        Prediction(point.ttft * factor, point.tpot) for point, factor in zip(made.points, (1.1, 0.8, 1.0), strict=True)
    ]
    cell = made.cell("fitted", range(3))
    assert cell is not None
    assert cell.mape_ttft == pytest.approx(0.1)
    assert cell.signed_ttft == pytest.approx(-0.1 / 3)
    assert cell.mape_tpot == pytest.approx(0.0, abs=1e-12)


def test_excluded_points_are_reported_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    excluded = {"model_path": "nvidia/Llama-3.1-8B-Instruct-FP8", "system": "h200_sxm", "gemm_quant_mode": "fp8"}
    rows = [{"silicon_data_source": f"{GAP}2", "batch_size": "2", "osl": "16", **more} for more in ({}, excluded)]
    made = SiliconReport(
        read_points(written(tmp_path, *rows)),
        {name: [Prediction(0.1542, 0.01804)] * 2 for name in ("data sheet", "fitted")},
    )
    both = made.to_dict()["variants"]["fitted"]
    assert sum(group["n"] for group in both["without_excluded"]["groups"]) == 1
    assert sum(group["n"] for group in both["with_excluded"]["groups"]) == 2
    assert any("(excluded)" in row[0] for table in made.tables() for row in table.rows)


@pytest.mark.parametrize(
    ("only", "said"),
    [
        ("system", "NAME=VALUE is needed"),
        ("sistem=h100_sxm", "unknown filter 'sistem': did you mean 'system'"),
        ("system=abacus", "no point of the file is of these"),
    ],
)
def test_filters_that_find_nothing_are_refused(tmp_path: Path, only: str, said: str) -> None:
    points(tmp_path)
    with pytest.raises(InputError, match=said):
        validate(only=only, folder=tmp_path, file=tmp_path / "silicon_sample.csv", run=rooflined)


def test_filters_name_what_points_are(tmp_path: Path) -> None:
    wanted = parsed("engine=vllm, model=qwen3-32b,tp=2")
    assert [passes(point, wanted) for point in points(tmp_path)] == [True, True, False, False, False]


def test_constants_are_added_and_listed() -> None:
    profile = operator_profile().model_copy(
        update={"dtype": "fp8", "host": Host(), "tokens": {"linears": Curve(at=(1, 512, 4096), ns=(10.0, 20.0, 100.0))}}
    )
    found = applied(profile, Constants(step=1e-3, sequence=2e-6, large_gemm=1.5, basis="a test"))
    assert found.host == Host(step_ns=1e6, sequence_ns=2e3)
    assert found.tokens["linears"].ns == (10.0, 20.0, 150.0)
    assert len(found.constants) == len(profile.constants) + 3
    assert applied(profile, DATA_SHEET) == profile


def test_no_engine_has_more_than_three_fitted_constants() -> None:
    for engine, found in silicon_constants.FITTED.items():
        numbers = replace(found, basis=DATA_SHEET.basis)
        fitted = [
            name
            for name in ("step", "sequence", "request", "large_gemm")
            if getattr(numbers, name) != getattr(DATA_SHEET, name)
        ]
        assert 1 <= len(fitted) <= 3, engine
        assert "hash is even" in found.basis


@needs_tables
def test_a_real_point_is_near_what_was_measured(tmp_path: Path) -> None:
    found = validate(
        only="engine=vllm,model=Llama-3.1-70B,system=h200_sxm,concurrency=4,half=fitted",
        limit=2,
        folder=tmp_path,
        processes=1,
    )
    for prediction, point in zip(found.predictions["fitted"], found.points, strict=True):
        assert prediction.ttft == pytest.approx(point.ttft, rel=0.3)
        assert prediction.tpot == pytest.approx(point.tpot, rel=0.15)
