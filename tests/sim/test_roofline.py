"""The roofline: known counts, monotonicity, and one arithmetic path."""

import timeit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.hardware import hardware
from scenarios.models import CATALOG, model
from serving.plan import StepShape
from sim.roofline import Roofline, distinct_experts

DENSE = Roofline(model("Llama-3.1-8B"), hardware("H100"))
SPARSE = Roofline(model("Qwen3-30B-A3B"), hardware("H200"), dtype="fp8", kv_dtype="fp8")
CPU = Roofline(model("qwen3-tiny"), hardware("cpu"))
COSTS = pytest.mark.parametrize("cost", [DENSE, SPARSE, CPU], ids=lambda c: c.name)

chunks = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 20_000)), max_size=4).map(tuple)


@st.composite
def shapes(draw: st.DrawFn) -> StepShape:
    prefill = draw(chunks)
    sequences = draw(st.integers(0 if prefill else 1, 300))
    context = draw(st.integers(sequences, 1 + sequences * 5000)) if sequences else 0
    sampled = sequences + draw(st.integers(0, len(prefill)))
    return StepShape(prefill, sequences, context, context // max(1, sequences), sampled)


@pytest.mark.parametrize(("tokens", "read"), [(1, 2.0), (4, 5.47), (16, 7.92)])
def test_case_12_distinct_experts_read_under_even_routing(tokens, read):
    assert distinct_experts(8, 2, tokens) == pytest.approx(read, abs=0.005)


def test_mixture_computes_with_active_experts_and_reads_distinct_ones():
    spec = model("Qwen3-30B-A3B")
    cost = Roofline(spec, hardware("H200"))
    one, many = (StepShape((), n, n, 1, n) for n in (1, 4096))
    expert_bytes = 3 * spec.hidden_size * spec.moe_intermediate_size * 2.0 * spec.num_layers
    read_ns = spec.num_experts_per_tok * expert_bytes / (4.8e12 * 0.8) * 1e9
    assert cost.terms(one)["linears, bandwidth"] > read_ns
    assert cost.terms(one)["linears, bandwidth"] < 2 * read_ns
    compute_ns = 4096 * 2 * spec.num_experts_per_tok * (expert_bytes / 2.0) / (989e12 * 0.75) * 1e9
    assert cost.terms(many)["linears, compute"] == pytest.approx(compute_ns, rel=0.5)


def test_weights_bind_at_batch_one_and_arithmetic_binds_long_prefills():
    decode, prefill = DENSE.terms(StepShape((), 1, 100, 100, 1)), DENSE.terms(StepShape(((8192, 0),), sampled=1))
    assert decode["linears, compute"] == 0.0
    assert prefill["linears, bandwidth"] == 0.0
    spec = model("Llama-3.1-8B")
    layers = spec.parameters() - 2 * spec.vocab_size * spec.hidden_size
    assert decode["linears, bandwidth"] == pytest.approx(2 * layers / (3.35e12 * 0.8) * 1e9, rel=0.01)
    assert prefill["linears, compute"] == pytest.approx(8192 * 2 * layers / (989e12 * 0.75) * 1e9, rel=0.01)


def test_case_08_shared_prefix_is_not_free_attention():
    # A shape holds contexts only: 32 decodes behind one shared prefix are the same shape as 32 unshared ones, and pay
    # for every one of their contexts.
    shape = StepShape((), 32, 32 * 4097, 4097, 32)
    private = shape._replace(decode_context=32, decode_max_context=1)
    bytes_read = 32 * 4096 * model("Llama-3.1-8B").kv_bytes_per_token("bfloat16")
    extra = DENSE.step_ns(shape) - DENSE.step_ns(private)
    assert extra == pytest.approx(bytes_read / (3.35e12 * 0.8) * 1e9, rel=1e-6)


def test_kv_precision_halves_what_decode_attention_reads():
    half = Roofline(model("Llama-3.1-8B"), hardware("H100"), kv_dtype="fp8")
    shape = StepShape((), 8, 80_000, 10_000, 8)
    assert half.terms(shape)["decode attention"] == pytest.approx(DENSE.terms(shape)["decode attention"] / 2)


def test_chunks_with_a_prefix_pay_for_it():
    alone, behind = StepShape(((512, 0),)), StepShape(((512, 8192),))
    assert DENSE.terms(behind)["prefill attention"] > 10 * DENSE.terms(alone)["prefill attention"]


@COSTS
@settings(max_examples=100, deadline=None)
@given(shape=shapes())
def test_terms_sum_to_the_step(cost, shape):
    assert sum(cost.terms(shape).values()) == pytest.approx(cost.step_ns(shape), abs=1.0, rel=1e-12)


@COSTS
@settings(max_examples=150, deadline=None)
@given(shape=shapes(), more=st.integers(1, 500))
def test_law_12_more_work_never_costs_less(cost, shape, more):
    base = cost.step_ns(shape)
    context, sequences, sampled = shape.decode_context, shape.decode_sequences, shape.sampled
    assert cost.step_ns(shape._replace(decode_sequences=sequences + more, sampled=sampled + more)) >= base
    if sequences:
        assert cost.step_ns(shape._replace(decode_context=context + more)) >= base
    assert cost.step_ns(shape._replace(prefill=(*shape.prefill, (more, 0)))) >= base
    if shape.prefill:
        (query, before), *rest = shape.prefill
        assert cost.step_ns(shape._replace(prefill=((query + more, before), *rest))) >= base
        assert cost.step_ns(shape._replace(prefill=((query, before + more), *rest))) >= base
        assert cost.step_ns(shape._replace(sampled=sampled + more)) >= base


@COSTS
@settings(max_examples=100, deadline=None)
@given(sequences=st.integers(1, 300), mean=st.integers(1, 5000), n=st.integers(1, 200))
def test_law_07_leap_equals_its_single_steps_to_the_last_bit(cost, sequences, mean, n):
    shape = StepShape((), sequences, sequences * mean, mean, sequences)
    leap = cost.leap_ns(shape, n)
    singles = [cost.decode_ns(sequences, sequences * (mean + i), mean + i) for i in range(n)]
    assert leap.dtype == np.int64
    assert leap.tolist() == singles
    assert cost.step_ns(shape) == singles[0]


def test_costs_do_not_depend_on_what_was_asked_before():
    # Tables grow when they are needed; the order in which that happens must not show.
    ask = [StepShape(((n, 0),), sampled=1) for n in (1, 5000, 17, 1023, 1024, 2047, 70_000)]
    up = Roofline(model("Qwen3-30B-A3B"), hardware("H100"))
    down = Roofline(model("Qwen3-30B-A3B"), hardware("H100"))
    assert [up.step_ns(s) for s in ask] == [down.step_ns(s) for s in reversed(ask)][::-1]


@pytest.mark.parametrize("name", CATALOG)
def test_every_model_of_the_catalog_has_a_cost(name):
    cost = Roofline(model(name), hardware("H100"))
    assert cost.decode_ns(1, 1, 1) > 0
    assert cost.extrapolation(StepShape((), 1, 1, 1, 1)) == "roofline: no measurement"


def test_a_decode_step_is_priced_in_about_a_quarter_microsecond():
    # The bound is ten times what it takes, so that a busy machine does not fail it; it catches a lost table.
    DENSE.decode_ns(28, 16_800, 900)
    best = min(timeit.repeat(lambda: DENSE.decode_ns(28, 16_800, 900), number=2000, repeat=5)) / 2000
    assert best < 3e-6


def test_a_group_of_devices_shares_the_work_and_pays_for_sums():
    spec, shape = model("Llama-3.1-70B"), StepShape(((4096, 1000),), 16, 16_000, 1000, 17)
    one, four = (Roofline(spec, hardware("H200"), tensor_parallel_size=size).terms(shape) for size in (1, 4))
    assert "all-reduce" not in one
    sent = 2 * 80 * 2 * (3 / 4) * (4096 + 16) * 8192 * 2.0
    assert four["all-reduce"] == pytest.approx(2 * 80 * 10e3 + sent / (450e9 * 0.8) * 1e9)
    assert four["linears, compute"] == pytest.approx(one["linears, compute"] / 4)
    for term in ("prefill attention", "decode attention"):
        assert four[term] == pytest.approx(one[term] / 4)
    assert four["host"] == one["host"]


def test_devices_beyond_the_kv_heads_read_as_much_kv_each():
    shape = StepShape((), 16, 160_000, 10_000, 16)
    costs = {n: Roofline(model("Qwen3-30B-A3B"), hardware("H100"), tensor_parallel_size=n) for n in (4, 8)}
    assert costs[8].terms(shape)["decode attention"] == costs[4].terms(shape)["decode attention"]
    assert costs[8].terms(shape)["linears, bandwidth"] < costs[4].terms(shape)["linears, bandwidth"]


def test_terms_of_a_group_sum_to_the_step():
    cost = Roofline(model("Qwen3-30B-A3B"), hardware("L40S"), tensor_parallel_size=2)
    for shape in (StepShape(((100, 7),), 3, 300, 100, 4), StepShape((), 3, 300, 100, 3)):
        assert sum(cost.terms(shape).values()) == pytest.approx(cost.step_ns(shape), abs=1)


def test_a_size_that_does_not_split_the_heads_is_refused():
    with pytest.raises(ValueError, match="found 3, allowed: 1, 2, 4, 8, 16, 32"):
        Roofline(model("Llama-3.1-8B"), hardware("H100"), tensor_parallel_size=3)
    with pytest.raises(ValueError, match=r"hardware\.link_bandwidth: missing in the sheet of cpu"):
        Roofline(model("Llama-3.1-8B"), hardware("cpu"), tensor_parallel_size=2)
