"""Operators compose to steps: each term is what its table says, layers and ranks times."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.operators import attention
from calibration.operators.aiconfigurator import hardware_of, load_tables
from calibration.operators.compose import compose
from calibration.operators.curves import thin
from scenarios.models import ModelSpec
from serving.plan import StepShape
from sim.operator_cost import OperatorCost
from sim.operator_profile import Host
from tests.calibration import synthetic_tables as toy
from tests.calibration.test_operator_tables import MODEL, MOE


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return toy.write(tmp_path_factory.mktemp("systems"))


def profile_of(root, model=MODEL, **more):
    return compose(load_tables("toy", "vllm", folder=root), model, hardware=hardware_of("toy", root), **more)


def at(curve, x):
    return float(np.interp(x, curve.at, curve.ns))


def test_linears_are_the_four_gemms_of_every_layer(root):
    profile = profile_of(root)
    gemms = [(1024, 512), (512, 512), (2048, 512), (512, 1024)]
    # 2,048 lies between measured widths, on whose plane it is.
    wide = toy.gemm_ms(4096, 1024, 512) * 2 / 3 + toy.gemm_ms(4096, 4096, 512) / 3
    one = sum(toy.gemm_ms(4096, n, k) for n, k in gemms if n != 2048) + wide
    assert at(profile.tokens["linears"], 4096) == pytest.approx(4 * one * 1e6, rel=0.004)


def test_whole_prompts_and_decodes_are_as_measured(root):
    profile = profile_of(root)
    cost = OperatorCost(profile)
    terms = cost.terms(StepShape(prefill=((1024, 0),)))
    assert terms["prefill attention"] == pytest.approx(4e6 * toy.prefill_ms(1, 1024), rel=0.01)
    terms = cost.terms(StepShape(decode_sequences=8, decode_context=8 * 1023, decode_max_context=1023, sampled=8))
    assert terms["decode attention"] == pytest.approx(4e6 * toy.decode_ms(8, 1023), rel=0.01)


def test_a_chunk_behind_cached_tokens_is_the_difference_of_whole_prompts(root):
    profile = profile_of(root)
    cost = OperatorCost(profile)
    found = cost.terms(StepShape(prefill=((4096, 4096),)))["prefill attention"]
    # A saturated device pays the launch once for many prompts, so that it is not in the difference.
    assert found == pytest.approx(4e6 * (toy.prefill_ms(1, 8192) - toy.prefill_ms(1, 4096)), rel=0.02)


def test_a_chunk_never_costs_less_than_a_lone_prompt_or_a_lone_decode(root):
    times = attention.Chunks.of(*(load_tables("toy", "vllm", folder=root).prefill[8, 4, 64, "bfloat16"],
                                  load_tables("toy", "vllm", folder=root).decode[8, 4, 64, "bfloat16"]))  # fmt: skip
    query, context = np.array([1.0, 16.0]), np.array([16383.0, 16383.0])
    assert np.all(times.chunk(query, context) >= toy.decode_ms(1, 16383) * 1e6)
    assert np.all(times.chunk(query, 0 * context) >= toy.prefill_ms(1, 1) * 1e6)


def test_many_chunks_pay_the_launch_once(root):
    profile = profile_of(root)
    cost = OperatorCost(profile)
    one = cost.terms(StepShape(prefill=((64, 0),)))["prefill attention"]
    eight = cost.terms(StepShape(prefill=((64, 0),) * 8))["prefill attention"]
    assert one == pytest.approx(4e6 * toy.prefill_ms(1, 64), rel=0.01)
    assert eight == pytest.approx(4e6 * toy.prefill_ms(8, 64), rel=0.1)


def test_two_all_reduces_a_layer_count_elements_graph_below_eager_above(root):
    curve = profile_of(root, tensor_parallel_size=2, graph_tokens=512).tokens["all-reduce"]
    for tokens, eager in ((64, False), (512, False), (513, True), (4096, True)):
        wanted = 2 * MODEL.num_layers * toy.all_reduce_ms(2, tokens * MODEL.hidden_size, eager) * 1e6
        assert at(curve, tokens) == pytest.approx(wanted, rel=0.01)


def test_a_rank_has_its_share_of_every_gemm(root):
    whole, half = profile_of(root), profile_of(root, tensor_parallel_size=2)
    assert at(half.tokens["linears"], 16384) < 0.6 * at(whole.tokens["linears"], 16384)
    assert half.provenance != whole.provenance


def test_fp8_gemms_lose_the_scaling_that_another_kernel_does_in_passing(root):
    def linears(scales):
        return profile_of(root, dtype="fp8", activation_scales=scales).tokens["linears"]

    scaling = 4e6 * sum(toy.scaling_ms(4096, k) for k in (512, 512, 512, 1024))
    # What attention puts out goes to the output projection, and no kernel between the two could scale it.
    kept = 0.6 * 4e6 * toy.scaling_ms(4096, 512)
    dynamic = at(linears("dynamic"), 4096)
    assert dynamic - at(linears("static"), 4096) == pytest.approx(0.4 * scaling, rel=0.05)
    assert dynamic - at(linears("fused"), 4096) == pytest.approx(scaling - kept, rel=0.05)
    used = {p.operator for p in profile_of(root, dtype="fp8", activation_scales="fused").provenance}
    assert {"scale (taken off fp8 GEMMs)", "quantize (taken off fp8 GEMMs)"} <= used


def test_experts_are_spread_as_stated_and_it_is_listed(root):
    even, skewed = profile_of(root, MOE, expert_skew="balanced"), profile_of(root, MOE)
    assert at(skewed.tokens["experts"], 1024) == pytest.approx(1.5 * at(even.tokens["experts"], 1024), rel=0.01)
    assert at(even.tokens["experts"], 1024) == pytest.approx(4e6 * toy.experts_ms(1024), rel=0.01)
    listed = {c.name: c for c in skewed.constants}
    assert listed["expert_skew"].value == 1.01
    assert listed["expert_skew"].basis == "assumed"


def test_what_nobody_measured_is_the_roofline_of_that_operator_and_says_so(root):
    other = ModelSpec("other", 512, 1024, 4, 8, 8, 64, 16000)
    profile = profile_of(root, other, tensor_parallel_size=8)
    unmeasured = {p.operator.split(" (")[0] for p in profile.provenance if p.rows == 0}
    assert unmeasured == {"prefill attention", "decode attention", "all-reduce of 8"}
    assert all(p.hash for p in profile.provenance if p.rows)


def test_the_host_is_nothing_unless_it_is_given(root):
    assert profile_of(root).host == Host()
    given = profile_of(root, host=Host(step_ns=1e6, sequence_ns=2e4), host_why="fitted to something")
    bare, costly = OperatorCost(profile_of(root)), OperatorCost(given)
    shape = StepShape(decode_sequences=3, decode_context=300, decode_max_context=100, sampled=3)
    assert costly.step_ns(shape) - bare.step_ns(shape) == pytest.approx(1e6 + 3 * 2e4, abs=2)
    assert {c.basis for c in given.constants if c.name.startswith("host.")} == {"fitted"}


def test_a_value_that_more_work_contradicts_twice_is_left_out_and_named(tmp_path):
    wrong = next(i for i, (b, s) in enumerate([(b, s) for b in toy.BATCH for s in toy.CONTEXTS]) if (b, s) == (1, 255))
    change = toy.with_value("latency", wrong, 3 * toy.decode_ms(1, 255))
    bad, good = (
        profile_of(toy.write(tmp_path / "bad", {"generation": change})),
        profile_of(toy.write(tmp_path / "good")),
    )
    assert any("decode attention: left out" in text and f"rows {wrong} of" in text for text in bad.not_modelled)
    assert np.allclose(bad.decode_attention.ns, good.decode_attention.ns, rtol=0.02)


def test_a_gemm_that_larger_ones_contradict_is_left_out_but_a_kernel_slow_at_one_m_everywhere_stays(tmp_path):
    cells = [(m, n, k) for n in toy.N for k in toy.N for m in toy.M]
    wrong = cells.index((64, 512, 512))
    change = toy.with_value("latency", wrong, 3 * toy.gemm_ms(64, 512, 512))
    bad, good = profile_of(toy.write(tmp_path / "bad", {"gemm": change})), profile_of(toy.write(tmp_path / "good"))
    assert any(f"rows {wrong} of" in text for text in bad.not_modelled)
    assert at(bad.tokens["linears"], 64) == pytest.approx(at(good.tokens["linears"], 64), rel=0.02)

    def slow_alone(rows):
        return rows | {"latency": [t * (3 if m == 1 else 1) for t, m in zip(rows["latency"], rows["m"], strict=True)]}

    slow = profile_of(toy.write(tmp_path / "slow", {"gemm": slow_alone}))
    assert not any("left out" in text for text in slow.not_modelled)
    assert at(slow.tokens["linears"], 1) == pytest.approx(3 * at(good.tokens["linears"], 1), rel=0.01)


def test_keys_and_values_that_stayed_in_a_cache_while_they_were_measured_are_read_in_a_model(tmp_path):
    cached = 64e6

    def hot(rows):
        size = [4 * 4 * 64 * b * (s + 1) for b, s in zip(rows["batch_size"], rows["step"], strict=True)]
        return rows | {"latency": [t / (4 if x < cached else 1) for t, x in zip(rows["latency"], size, strict=True)]}

    shapes = [(b, s) for b in (1, 8, 64, 512) for s in (1, 63, 1023, 4095)]
    rows = {"batch_size": [b for b, _ in shapes], "step": [s for _, s in shapes]}

    def large(given):
        kept = {name: [cells[0]] * len(shapes) for name, cells in given.items() if name not in rows}
        return hot(kept | rows | {"latency": [toy.decode_ms(b, s) for b, s in shapes]})

    profile = profile_of(toy.write(tmp_path, {"generation": large}))
    floor = [
        [4 * 4 * 64 * b * (s + 1) * 2e9 / toy.BANDWIDTH for s in profile.decode_attention.contexts]
        for b in (1, 8, 64, 512)
    ]
    assert np.all(np.array(profile.decode_attention.ns) >= 4 * 0.99 * np.array(floor))
    assert any(c.name == "decode attention: raised" for c in profile.constants)


def test_points_that_a_line_tells_are_left_out_within_the_tolerance():
    points = np.arange(1, 200)
    ns = 100.0 + points + np.where(points > 100, 3.0 * (points - 100), 0.0)
    kept, values = thin(points, ns, 0.003)
    assert len(kept) < 10
    assert np.max(np.abs(np.interp(points, kept, values) / ns - 1)) <= 0.003


def test_cross_validation_predicts_each_row_without_itself(root):
    errors = profile_of(root).cv_error
    assert set(errors) == {
        "gemm over m", "gemm over n", "prefill attention over tokens", "decode attention over context",
        "decode attention over batch",
    }  # fmt: skip
    assert "all-reduce over tokens" in profile_of(root, tensor_parallel_size=2).cv_error
    assert all(e.observations > 0 for e in errors.values())
    # The law of the toy is straight in contexts and batch, so that lines tell it exactly.
    assert errors["decode attention over context"].worst == pytest.approx(0, abs=1e-9)
    assert errors["prefill attention over tokens"].mape > 0.05


def test_composing_twice_gives_the_same_bytes(root):
    assert profile_of(root).model_dump_json() == profile_of(root).model_dump_json()
