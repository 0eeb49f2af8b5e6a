"""Kernel bundles compose to step costs: sums of kernels, straight between sizes, and nothing that a run could tune."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.operators.llmservingsim import read_bundle
from scenarios.errors import InputError
from serving.plan import StepShape
from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from tests.calibration.bundles import (
    DECODES,
    EXPERTS,
    HEAD,
    KERNELS,
    LENGTHS,
    MODEL,
    attention_rows,
    both_us,
    decode_us,
    prompt_us,
    shape_of,
    write_bundle,
    write_rows,
    write_saved,
    write_skew,
)

LAYERS = MODEL.num_layers


def rows_us(tokens: int, sampled: int) -> float:
    """Everything but attention of a dense step."""
    layer = sum(a + b * tokens for name, (a, b) in KERNELS.items() if name not in ("embedding", "final_layernorm"))
    norm, once = KERNELS["layernorm"], (KERNELS["embedding"], KERNELS["final_layernorm"])
    whole = LAYERS * (layer + norm[0] + norm[1] * tokens) + sum(a + b * tokens for a, b in once)
    return whole + sum(a + b * sampled for a, b in HEAD.values())


def decodes(n: int, context: int, longest: int | None = None) -> StepShape:
    return StepShape((), n, n * context, context if longest is None else longest, n)


def us(profile: OperatorProfile, shape: StepShape) -> float:
    return OperatorCost(profile).step_ns(shape) / 1e3


def test_a_decode_step_is_the_sum_of_its_kernels(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path), MODEL)
    assert us(profile, decodes(8, 256)) == pytest.approx(rows_us(8, 8) + LAYERS * decode_us(8, 256), rel=1e-4)


def test_the_device_has_the_name_that_scenarios_know(tmp_path: Path) -> None:
    assert read_bundle(write_bundle(tmp_path, hardware="RTX4090"), MODEL).hardware == "RTX-4090"
    assert read_bundle(write_bundle(tmp_path), MODEL).hardware == "TESTING"


def test_sizes_between_measured_ones_lie_on_straight_lines(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path), MODEL)
    between = rows_us(12, 12) + LAYERS * decode_us(12, 640)
    assert us(profile, decodes(12, 640)) == pytest.approx(between, rel=1e-3)


def test_a_prompt_and_decodes_are_one_kernel_of_the_mixed_table(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path), MODEL)
    mixed = StepShape(((64, 256),), 8, 8 * 64, 64, 9)
    assert us(profile, mixed) == pytest.approx(rows_us(72, 9) + LAYERS * both_us(64, 256, 8, 64), rel=1e-4)
    more = us(profile, StepShape(((128, 1024),), 16, 16 * 1024, 1024, 17))
    assert more == pytest.approx(rows_us(144, 17) + LAYERS * both_us(128, 1024, 16, 1024), rel=1e-4)


def test_between_chunk_lengths_the_causal_half_is_a_parabola_and_not_its_chord(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path), MODEL)
    attention = LAYERS * prompt_us(96, 1024)
    found = us(profile, StepShape(((96, 1024),), 0, 0, 0, 1)) - rows_us(96, 1)
    assert found == pytest.approx(attention, rel=1e-3)
    chord = LAYERS * (prompt_us(64, 1024) + prompt_us(128, 1024)) / 2
    assert abs(found - attention) < 0.3 * (chord - attention)


def test_several_chunks_of_a_step_pay_the_smallest_one_once(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path), MODEL)
    both = us(profile, StepShape(((64, 0), (64, 256)), 0, 0, 0, 2)) - rows_us(128, 2)
    parts = prompt_us(64, 0) + prompt_us(64, 256) - prompt_us(16, 0)
    assert both == pytest.approx(LAYERS * parts, rel=1e-3)


def test_a_step_below_the_largest_captured_size_costs_what_the_next_one_does(tmp_path: Path) -> None:
    padded = read_bundle(write_bundle(tmp_path), MODEL, capture_sizes=(1, 2, 4, 8, 16))
    eager = read_bundle(tmp_path, MODEL)
    attention = LAYERS * decode_us(9, 256)
    assert us(padded, decodes(9, 256)) == pytest.approx(rows_us(16, 9) + attention, rel=1e-3)
    assert us(eager, decodes(9, 256)) == pytest.approx(rows_us(9, 9) + attention, rel=1e-3)
    assert us(padded, decodes(17, 256)) == pytest.approx(us(eager, decodes(17, 256)), rel=1e-6)


def test_an_eager_engine_pays_for_uneven_contexts(tmp_path: Path) -> None:
    write_skew(write_bundle(tmp_path), alpha=0.2)
    profile = read_bundle(tmp_path, MODEL)
    assert profile.skew is not None
    assert profile.skew.alpha == pytest.approx([0.2, 0.2, 0.2])
    even, longest = decode_us(8, 256), decode_us(8, 1024)
    uneven = rows_us(8, 8) + LAYERS * (even + 0.2 * (longest - even))
    assert us(profile, decodes(8, 256, longest=1024)) == pytest.approx(uneven, rel=1e-3)


def test_sums_over_iterations_in_the_skew_table_change_nothing(tmp_path: Path) -> None:
    write_skew(write_bundle(tmp_path), alpha=0.2, iterations=3)
    profile = read_bundle(tmp_path, MODEL)
    assert profile.skew is not None
    assert profile.skew.alpha == pytest.approx([0.2, 0.2, 0.2])


def test_what_capturing_saves_and_what_uneven_contexts_cost_go_together(tmp_path: Path) -> None:
    write_skew(write_bundle(tmp_path), alpha=0.2)
    alone = read_bundle(tmp_path, MODEL, capture_sizes=(1, 8, 16, 32, 64))
    assert alone.skew is None
    write_saved(tmp_path, us=4.0)
    both = read_bundle(tmp_path, MODEL, capture_sizes=(1, 8, 16, 32, 64))
    assert both.skew is not None
    assert us(alone, decodes(8, 256)) - us(both, decodes(8, 256)) == pytest.approx(4.0, abs=0.01)
    large = StepShape(((128, 0),), 0, 0, 0, 1)
    assert us(alone, large) == pytest.approx(us(both, large), rel=1e-4)


def test_experts_that_are_read_grow_with_tokens_that_choose_alike(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path, EXPERTS), EXPERTS)
    for tokens in (1, 8, 64):
        read = 16 * (1 - (1 - 2 / 16) ** tokens)
        expected = LAYERS * (10.0 + 4.0 * min(max(read, 2), 16) + 0.1 * tokens) * 1e3
        curve = profile.tokens["experts"]
        assert curve.ns[curve.at.index(tokens)] == pytest.approx(expected, rel=0.02)
    assert [constant.basis for constant in profile.constants] == ["assumed"]


def test_tensor_parallel_tables_are_found_and_pay_for_all_reduces(tmp_path: Path) -> None:
    folder = write_bundle(
        tmp_path, tables=tmp_path / "tp2", tp_degrees=[1, 2], engine_effective={"hf_overrides": shape_of(MODEL, 2)}
    )
    samples = "".join(f"    - {{collective: all_reduce, bytes: {2048 * t}, us: {10 + t}}}\n" for t in (1, 8, 64, 512))
    (folder / "hardware.yaml").write_text(f"measured:\n  interconnect:\n    npus: 2\n    samples:\n{samples}")
    profile = read_bundle(folder, MODEL, tensor_parallel_size=2)
    assert profile.tensor_parallel_size == 2
    expected = rows_us(8, 8) + LAYERS * (decode_us(8, 256) + 2 * 18.0)
    assert us(profile, decodes(8, 256)) == pytest.approx(expected, rel=1e-3)


def test_rows_over_how_far_queries_look_back_are_read_as_contexts(tmp_path: Path) -> None:
    plain = read_bundle(write_bundle(tmp_path), MODEL)
    keys = sorted({c + q / 2 for q in (16, 32, 64, 128) for c in (0, 16, 64, 256, 1024)})
    rows: list[tuple[object, ...]] = []
    for q, c, n, k, time in attention_rows():
        if not q:
            rows.append(("attention", q, 0.0, n, k, 1, time))
        elif c == 0:
            for key in keys:
                if key >= q / 2:
                    at = key - q / 2
                    rows.append(("attention", q, key, n, k, 1, both_us(q, at, n, k) if n else prompt_us(q, at)))
    rows.append(("attention", 0, 0.0, 2, 64, 3, 99.0))  # a step that verifies drafts
    header = ("layer", "prefill_chunk", "prefill_key", "n_decode", "kv_decode", "decode_q_len", "time_us")
    write_rows(tmp_path / "attention.csv", header, rows)
    keyed = read_bundle(tmp_path, MODEL)
    for shape in (decodes(8, 256), StepShape(((64, 256),), 8, 8 * 64, 64, 9), StepShape(((128, 64),), 0, 0, 0, 1)):
        assert us(keyed, shape) == pytest.approx(us(plain, shape), rel=2e-3)


def test_a_corner_without_room_goes_on_with_the_last_slope(tmp_path: Path) -> None:
    whole = read_bundle(write_bundle(tmp_path), MODEL)
    corner = DECODES[-1], LENGTHS[-1]
    header = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    write_rows(tmp_path / "attention.csv", header, [row for row in attention_rows() if row[2:4] != corner])
    cut = read_bundle(tmp_path, MODEL)
    assert us(cut, decodes(16, 1024)) == pytest.approx(us(whole, decodes(16, 1024)), rel=1e-3)


def test_attention_never_falls_with_more_work_though_its_table_does(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    rows = [(*row[:4], row[4] * (0.8 if row[0] == 64 else 1.0)) for row in attention_rows()]
    write_rows(tmp_path / "attention.csv", ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"), rows)
    cost = OperatorCost(read_bundle(tmp_path, MODEL))
    times = [cost.step_ns(StepShape(((query, 256),), 4, 4 * 64, 64, 5)) for query in range(16, 129, 4)]
    assert times == sorted(times)


def test_dips_of_measured_kernels_stay_and_are_named(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    dense = tmp_path / "dense.csv"
    lines = [
        line.replace(",43.2", ",143.2") if line.startswith("gate_up_proj,8,") else line
        for line in dense.read_text().splitlines()
    ]
    dense.write_text("\n".join(lines))
    profile = read_bundle(tmp_path, MODEL)
    assert [(jump.kind, jump.tokens_from) for jump in profile.jumps if jump.kind == "dip"] == [("dip", 8)]


def test_a_profile_says_where_its_numbers_come_from(tmp_path: Path) -> None:
    profile = read_bundle(write_bundle(tmp_path), MODEL)
    assert [part.operator for part in profile.provenance] == ["dense", "per_sequence", "attention"]
    assert all(part.rows and part.hash for part in profile.provenance)
    assert set(profile.cv_error) == {"dense", "per_sequence", "decode_attention", "prefill_attention"}
    assert profile == read_bundle(tmp_path, MODEL)
    assert (profile.model, profile.dtype, profile.kv_dtype, profile.engine) == (
        "small",
        "bfloat16",
        "bfloat16",
        "vllm@0.19.0",
    )


def test_tables_beside_meta_are_of_the_rank_that_it_states(tmp_path: Path) -> None:
    write_bundle(tmp_path, tp_degrees=[1, 2], engine_effective={"hf_overrides": shape_of(MODEL, 2)})
    (tmp_path / "hardware.yaml").write_text(
        "measured: {interconnect: {npus: 2, samples: [{bytes: 2048, us: 10}, {bytes: 1048576, us: 50}]}}"
    )
    assert read_bundle(tmp_path, MODEL, tensor_parallel_size=2).tensor_parallel_size == 2
    write_bundle(tmp_path, tp_degrees=[1, 2], engine_effective={"hf_overrides": shape_of(MODEL)})
    assert read_bundle(tmp_path, MODEL).tensor_parallel_size == 1
    with pytest.raises(InputError, match="no folder tp2"):
        read_bundle(tmp_path, MODEL, tensor_parallel_size=2)
