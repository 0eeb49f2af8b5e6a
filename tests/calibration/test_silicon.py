"""Reading measured end-to-end points: halves, concurrency, duplicates, exclusions, refusals."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
from pathlib import Path

import pytest

from calibration.operators import aiconfigurator
from calibration.silicon.points import Point, configuration_of, find_file, half_of, read_points, remeasured
from calibration.silicon.scope import (
    EXCLUSIONS,
    GAP_ANALYSIS,
    GTL,
    INFERENCEMAX,
    exclusion_of,
    hardware_of,
    model_of,
    population_of,
    why_not,
)
from scenarios.errors import InputError

ROW = {
    "id": "a", "silicon_data_source": "source_file=2026-04-06.csv; silicon_concurrency=16", "backend": "vllm",
    "backend_version": "0.12.0", "model_path": "Qwen/Qwen3-32B", "system": "h100_sxm", "precision": "", "mode": "agg",
    "isl": "1024", "osl": "128", "gemm_quant_mode": "", "moe_quant_mode": "", "batch_size": "8", "tp_size": "2",
    "pp_size": "1", "attention_dp_size": "", "moe_tp_size": "1", "moe_ep_size": "1", "silicon_ttft_ms": "154.2",
    "silicon_tpot_ms": "18.04",
}  # fmt: skip

COLUMNS = list(ROW)


def written(folder: Path, *rows: dict[str, str], columns: list[str] = COLUMNS) -> Path:
    path = folder / "silicon_sample.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return path


def only(folder: Path, **changes: str) -> Point:
    (point,) = read_points(written(folder, changes))
    return point


def test_the_half_is_the_first_digit_of_the_hash_of_the_configuration() -> None:
    text = "vllm,0.12.0,Qwen/Qwen3-32B,h100_sxm,,agg,1024,128,,,8,2,1,,1,1"
    digest = hashlib.sha1(text.encode()).hexdigest()
    assert configuration_of(ROW) == digest
    assert half_of(digest) == ("fitted" if digest[0] in "02468ace" else "held-out")
    assert {half_of(f"{digit:x}000") for digit in range(0, 16, 2)} == {"fitted"}
    assert {half_of(f"{digit:x}000") for digit in range(1, 16, 2)} == {"held-out"}


def test_neither_id_nor_source_nor_what_was_measured_moves_a_row_to_the_other_half(tmp_path: Path) -> None:
    changed = {"id": "b", "silicon_data_source": "elsewhere", "silicon_ttft_ms": "9", "silicon_tpot_ms": "1"}
    first, second = read_points(written(tmp_path, {}, changed))
    assert first.configuration == second.configuration
    assert only(tmp_path, isl="1025").configuration != first.configuration


def test_rows_that_differ_in_id_and_source_alone_are_one_point(tmp_path: Path) -> None:
    assert len(read_points(written(tmp_path, {}, {"id": "b", "silicon_data_source": "a copy"}, {"osl": "129"}))) == 2


def test_concurrency_stands_in_the_source_and_is_the_batch_where_it_does_not(tmp_path: Path) -> None:
    assert only(tmp_path).concurrency == 16
    assert only(tmp_path, silicon_data_source="gtl_job_id=1").concurrency == 8
    assert only(tmp_path, silicon_data_source="gtl_job_id=1", batch_size="", mode="disagg").concurrency is None


def test_milliseconds_become_seconds(tmp_path: Path) -> None:
    point = only(tmp_path)
    assert point.ttft == pytest.approx(0.1542)
    assert point.tpot == pytest.approx(0.01804)


def test_a_way_of_splitting_that_does_not_apply_is_one(tmp_path: Path) -> None:
    point = only(tmp_path, moe_tp_size="0", attention_dp_size="", moe_ep_size="0")
    assert (point.expert_tensor_parallel, point.data_parallel, point.expert_parallel) == (1, 1, 1)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("isl", "many", "isl: found 'many', but a whole number above 0 is needed"),
        ("osl", "", "lengths are needed"),
        ("silicon_ttft_ms", "nan", "silicon_ttft_ms: found 'nan', but milliseconds above 0 are needed"),
        ("silicon_tpot_ms", "-1", "silicon_tpot_ms: found '-1'"),
        ("mode", "both", "unknown value 'both'"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, field: str, value: str, said: str) -> None:
    with pytest.raises(InputError, match=f"line 3: .*{said}"):
        read_points(written(tmp_path, {}, {field: value}))


def test_another_file_is_refused_by_the_column_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1: unknown column 'isl'"):
        read_points(written(tmp_path, {}, columns=[name for name in COLUMNS if name != "isl"]))
    with pytest.raises(InputError, match="not one point"):
        read_points(written(tmp_path))


def test_without_the_extra_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aiconfigurator.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r'pip install "servetwin\[profiles\]"'):
        find_file()


def test_the_noise_floor_is_what_repeated_measurements_differ_by(tmp_path: Path) -> None:
    again = {"silicon_ttft_ms": "169.62", "silicon_tpot_ms": "18.04"}  # 10 % more
    copied = {"osl": "500", "silicon_ttft_ms": "154.2001"}
    points = read_points(written(tmp_path, {}, again, {"osl": "500"}, copied))
    found = remeasured(points)
    assert found is not None
    assert found.configurations == 1, "a value that was only rounded once more is no second measurement"
    assert found.ttft_median == pytest.approx(0.1 / 1.05)
    assert found.tpot_median == 0
    assert remeasured(points[:1]) is None


def test_populations_are_told_by_their_sources(tmp_path: Path) -> None:
    for source, population in (
        ("source_file=2026-04-06.csv; model=Llama-3.1-70B; silicon_concurrency=8", INFERENCEMAX),
        ("db-dump/2026-04-27; config_id=733; silicon_concurrency=128", INFERENCEMAX),
        ("source_file=/some/gap-analysis/Qwen_Qwen3-32B.csv; silicon_concurrency=8", GAP_ANALYSIS),
        ("source_file=/some/gap-analysis/qwen3_32b.csv; gtl_job_id=1; gtl_task_id=2", GTL),
    ):
        assert population_of(only(tmp_path, silicon_data_source=source)) == population


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"model_path": "nvidia/Llama-3.1-8B-Instruct-FP8", "system": "h200_sxm"}, "Llama-8B-FP8 on H200"),
        (
            {"isl": "4000", "osl": "1000", "silicon_data_source": "gtl_task_id=dynamo; silicon_concurrency=8"},
            "gtl rows of 4000 in, 1000 out",
        ),
        ({"model_path": "meta-llama/Llama-3.1-70B"}, "Llama-70B on H100 at TP 2"),
        ({"backend": "sglang", "tp_size": "1"}, "Qwen3-32B at TP 1"),
        ({"model_path": "meta-llama/Llama-3.1-70B", "tp_size": "4"}, None),
        ({"isl": "4000", "osl": "1000"}, None),
        ({"backend": "sglang"}, None),
        ({}, None),
    ],
)
def test_exclusions_are_by_name(tmp_path: Path, changes: dict[str, str], name: str | None) -> None:
    found = exclusion_of(only(tmp_path, **changes))
    assert (found.name if found else None) == name
    assert len({exclusion.name for exclusion in EXCLUSIONS}) == len(EXCLUSIONS)
    assert all(exclusion.why for exclusion in EXCLUSIONS)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"model_path": "deepseek-ai/DeepSeek-R1"}, "MLA"),
        ({"model_path": "openai/gpt-oss-120b"}, "sliding-window"),
        ({"model_path": "Qwen/Qwen3.5-397B-A17B"}, "hybrid"),
        ({"mode": "disagg"}, "disaggregated"),
        ({"model_path": "mistral/Small"}, "dimensions"),
        ({"gemm_quant_mode": "int4_wo"}, "INT4"),
        ({"model_path": "MiniMaxAI/MiniMax-M2.5", "moe_tp_size": "4", "tp_size": "2"}, "data-parallel attention"),
        ({"model_path": "MiniMaxAI/MiniMax-M2.5", "moe_tp_size": "4", "tp_size": "4"}, None),
        ({"system": "abacus"}, "no sheet"),
        ({"silicon_data_source": "", "batch_size": ""}, "no concurrency"),
        ({"pp_size": "2"}, "pipeline"),
    ],
)
def test_what_cannot_be_simulated_says_why(tmp_path: Path, changes: dict[str, str], why: str | None) -> None:
    found = why_not(only(tmp_path, **changes))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.skipif(importlib.util.find_spec("aiconfigurator_core") is None, reason="needs the extra `profiles`")
def test_the_installed_file_has_the_points_and_halves_that_are_published() -> None:
    points = read_points(find_file())
    assert len(points) == 4525, "5,221 rows, 696 of which differ from another in id and source alone"
    runnable = [point for point in points if why_not(point) is None]
    assert all(model_of(point) is not None and hardware_of(point) is not None for point in runnable)
    hopper_vllm = [
        point for point in runnable
        if point.engine == "vllm" and point.system in ("h100_sxm", "h200_sxm") and model_of(point).num_experts == 0  # type: ignore[union-attr]
    ]  # fmt: skip
    assert len(hopper_vllm) == 219
    assert sum(point.half == "held-out" for point in hopper_vllm) == 102
