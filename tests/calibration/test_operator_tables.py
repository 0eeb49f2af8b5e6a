"""Reading operator tables: what is wrong in a file is told by file, row and remedy."""

from __future__ import annotations

import re

import pytest

from calibration.operators import aiconfigurator
from calibration.operators.aiconfigurator import load_tables, version_key
from calibration.operators.compose import compose
from calibration.operators.gemm import gemm_curve
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from tests.calibration import synthetic_tables as toy
from tests.calibration.synthetic_tables import repeated, times, with_value, without_column, without_rows

MODEL = ModelSpec("toy", 512, 1024, 4, 8, 4, 64, 16000)
MOE = ModelSpec(
    "toy-moe", 512, 1024, 4, 8, 4, 64, 16000, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256
)


def composed(root, model=MODEL, **more):
    tables = load_tables("toy", "vllm", folder=root)
    return compose(tables, model, hardware=aiconfigurator.hardware_of("toy", root), **more)


def refusal(tmp_path, operator, change, **more):
    root = toy.write(tmp_path / "systems", {operator: change})
    with pytest.raises(InputError) as caught:
        composed(root, **more)
    return str(caught.value)


def test_a_gemm_between_measured_shapes_is_on_the_plane_between_them(tmp_path):
    table = load_tables("toy", "vllm", folder=toy.write(tmp_path)).gemm["bfloat16"]
    curve = gemm_curve(table, 2048, 512)
    between = toy.gemm_ms(4096, 1024, 512) * 2 / 3 + toy.gemm_ms(4096, 4096, 512) / 3
    assert dict(zip(curve.m.tolist(), curve.ns.tolist(), strict=True))[4096] == pytest.approx(between * 1e6)
    assert curve.used == 2 * len(toy.M)


def test_rows_off_a_multiple_of_a_tile_stay(tmp_path):
    def leap(rows):
        slow = [v * (3 if m % 2 and m > 1 else 1) for m, v in zip(rows["m"], rows["latency"], strict=True)]
        return rows | {"latency": slow}

    profile = composed(toy.write(tmp_path, {"gemm": leap}))
    assert {16, 17, 64, 65} <= set(profile.tokens["linears"].at)
    places = [(j.kind, j.tokens_from, j.tokens_to) for j in profile.jumps]
    assert ("step", 64, 65) in places
    assert ("dip", 65, 256) in places


def test_a_gemm_wider_than_the_table_is_cut_into_equal_parts(tmp_path):
    table = load_tables("toy", "vllm", folder=toy.write(tmp_path)).gemm["bfloat16"]
    wide, part = gemm_curve(table, 32768, 512), gemm_curve(table, 16384, 512)
    assert wide.split == 2
    assert wide.ns.tolist() == [2 * x for x in part.ns.tolist()]


def test_a_gemm_longer_than_the_table_is_refused(tmp_path):
    table = load_tables("toy", "vllm", folder=toy.write(tmp_path)).gemm["bfloat16"]
    with pytest.raises(InputError, match="k 32768 is asked for, but k 16384 is the longest measured"):
        gemm_curve(table, 512, 32768)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("operator", ["gemm", "context", "generation", "all_reduce"])
def test_another_unit_is_told(tmp_path, operator, factor):
    text = refusal(tmp_path, operator, times("latency", factor))
    assert "read as milliseconds" in text
    assert ".parquet" in text
    assert "row " in text


@pytest.mark.parametrize(
    ("operator", "column"),
    [("gemm", "latency"), ("gemm", "k"), ("context", "isl"), ("generation", "step"), ("moe", "topk")],
)
def test_a_missing_column_is_named_with_what_there_is(tmp_path, operator, column):
    text = refusal(tmp_path, operator, without_column(column))
    assert f"column '{column}' is missing; found:" in text


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("latency", float("nan"), "found nan"),
        ("latency", -1.0, "found -1.0"),
        ("latency", float("inf"), "found inf"),
        ("latency", 0.0, "found 0.0"),
        ("latency", None, "latency is empty"),
        ("m", -3, "found -3"),
        ("k", None, "k is empty"),
    ],
)
def test_a_bad_value_is_named_by_its_row(tmp_path, column, value, said):
    text = refusal(tmp_path, "gemm", with_value(column, 37, value))
    assert "toy/gemm/vllm/1.0/gemm_perf.parquet, row 37" in text
    assert said in text
    assert "leave" in text


def test_a_hole_in_attention_is_named_where_its_shape_is_asked_for(tmp_path):
    text = refusal(tmp_path, "generation", without_rows(lambda r: r["batch_size"] == 8 and r["step"] == 255))
    assert "hole in the grid of decode attention: nothing was measured at (8, 255)" in text
    assert "rows" in text
    assert "leave out" in text


def test_a_hole_in_gemms_is_named(tmp_path):
    text = refusal(tmp_path, "gemm", without_rows(lambda r: r["n"] == 512 and r["k"] == 512 and r["m"] in (64, 65)))
    assert "hole in the grid of GEMMs: m 64 near n 512, k 512" in text


def test_a_single_missing_m_is_bridged_and_named(tmp_path):
    root = toy.write(tmp_path, {"gemm": without_rows(lambda r: (r["m"], r["n"], r["k"]) == (256, 512, 512))})
    profile = composed(root)
    assert any("m 256 was not measured" in text for text in profile.not_modelled)


def test_long_contexts_of_large_batches_that_fitted_no_memory_are_no_hole(tmp_path):
    profile = composed(toy.write(tmp_path))
    assert profile.domain.decode_context.max == 16383
    ns = profile.decode_attention.ns
    assert ns[-1][-1] > ns[-1][-2] > ns[-2][-2]


def test_repeats_that_agree_are_one_row_and_others_are_refused(tmp_path):
    composed(toy.write(tmp_path / "agree", {"gemm": repeated(40, 1.1)}))
    text = refusal(tmp_path, "gemm", repeated(40, 9.0))
    assert "stands there more than once and differs: row 40" in text
    assert "keep the right one" in text


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    root = toy.write(tmp_path)
    (root / "data/toy/gemm/vllm/1.0/gemm_perf.parquet").write_text("m,n,k\n")
    with pytest.raises(InputError, match=r"gemm_perf\.parquet: not a readable Parquet file"):
        load_tables("toy", "vllm", folder=root)


def test_the_newest_version_counts_unless_one_is_chosen(tmp_path):
    toy.write(tmp_path, version="1.9")
    root = toy.write(tmp_path, {"gemm": times("latency", 2.0)}, version="1.10")
    assert load_tables("toy", "vllm", folder=root).version == "1.10"
    old = load_tables("toy", "vllm", version="1.9", folder=root)
    assert old.version == "1.9"
    assert old.gemm["bfloat16"].origin.version == "vllm 1.9"
    with pytest.raises(InputError, match=r"unknown version '1\.7'"):
        load_tables("toy", "vllm", version="1.7", folder=root)


def test_versions_are_ordered_as_releases_are():
    names = ["1.0.0", "1.3.0.dev1", "1.3.0rc10", "1.3.0rc20", "1.3.0", "1.3.0.post2", "1.10.0"]
    assert sorted(names, key=version_key) == names


def test_unknown_names_are_refused_with_the_nearest(tmp_path):
    root = toy.write(tmp_path)
    with pytest.raises(InputError, match="unknown system 'toi': did you mean 'toy'"):
        load_tables("toi", "vllm", folder=root)
    with pytest.raises(InputError, match="unknown engine 'vlm': did you mean 'vllm'"):
        load_tables("toy", "vlm", folder=root)
    with pytest.raises(InputError, match="toy was not measured with sglang; measured with: vllm"):
        load_tables("toy", "sglang", folder=root)
    with pytest.raises(InputError, match="unknown expert_skew 'even'"):
        composed(root, MOE, expert_skew="even")
    with pytest.raises(InputError, match="unknown precision of the KV cache 'fp9'"):
        composed(root, kv_dtype="fp9")
    with pytest.raises(InputError, match="tensor_parallel_size 3 does not divide the heads of toy"):
        composed(root, tensor_parallel_size=3)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(aiconfigurator.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"servetwin\[profiles\]"):
        aiconfigurator.systems_folder()


def test_another_version_of_the_package_is_refused_with_the_tested_one(monkeypatch, tmp_path):
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})()
    monkeypatch.setattr(aiconfigurator.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(aiconfigurator.metadata, "version", lambda name: "0.13.0")
    with pytest.raises(InputError, match=r"0\.13\.0 is installed, but this reader was tested with 0\.12\.0"):
        aiconfigurator.systems_folder()


@pytest.mark.parametrize(
    ("sheet", "said"),
    [
        ("", "is empty"),
        ("[]", "a mapping of fields"),
        ("gpu: 3", "gpu is missing or no mapping"),
        ("gpu: {mem_bw: fast, bfloat16_tc_flops: 1.0e15}", "gpu.mem_bw: found 'fast'"),
        ("gpu: {mem_bw: 1.0e12}", "bfloat16_tc_flops is missing"),
        ("gpu: {mem_bw: -1, bfloat16_tc_flops: 1.0e15}", "gpu.mem_bw: found -1"),
        ("gpu: {mem_bw: [1, 2", "toy.yaml"),
    ],
)
def test_a_sheet_that_is_none_is_told(tmp_path, sheet, said):
    root = toy.write(tmp_path)
    (root / "toy.yaml").write_text(sheet)
    with pytest.raises(InputError, match=re.escape(said)):
        load_tables("toy", "vllm", folder=root)


@pytest.mark.parametrize("operator", ["gemm", "context", "generation", "all_reduce", "moe"])
def test_an_operator_of_years_is_told(tmp_path, operator):
    text = refusal(tmp_path, operator, with_value("latency", 3, 1e300), model=MOE if operator == "moe" else MODEL)
    assert "row 3: latency: found 1e+300" in text
    assert "correct the row or leave it out" in text
