"""Costs that follow from a profile of operators: by hand, between and beyond the points, and the laws of costs."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.plan import StepShape
from sim.operator_cost import OperatorCost
from sim.operator_profile import (
    Curve,
    DecodeAttention,
    Graphs,
    Host,
    MixedAttention,
    OperatorProfile,
    PrefillAttention,
    Skew,
)
from sim.profile_parts import Domain, Range, Source
from sim.profiles import load_profile
from tests.laws.operator_profiles import operator_profiles
from tests.laws.worlds import law


def profile(**changes: Any) -> OperatorProfile:
    fields: dict[str, Any] = {
        "name": "composed",
        "created": "2026-01-01T00:00:00+00:00",
        "source": Source(device="cuda", clock="device"),
        "hardware": "H100",
        "model": "Llama-3.1-8B",
        "dtype": "bfloat16",
        "kv_dtype": "bfloat16",
        "engine": "vllm 0.24",
        "domain": Domain(
            tokens=Range(min=1, max=8192),
            prefill_query=Range(min=1, max=8192),
            prefill_context=Range(min=0, max=16_384),
            decode_sequences=Range(min=0, max=256),
            decode_context=Range(min=0, max=16_384),
            sampled=Range(min=0, max=256),
        ),
        "tokens": {
            "linears": Curve(at=(1, 64, 65, 8192), ns=(4e6, 4.2e6, 4.1e6, 300e6)),
            "elementwise": Curve(at=(1, 8192), ns=(0.5e6, 9e6)),
        },
        "head": Curve(at=(1, 256), ns=(3e5, 6e5)),
        "prefill_attention": PrefillAttention(
            pair_ns=0.5, queries=(1, 1024), contexts=(0, 8192), ns=((1e5, 3e5), (2e5, 9e5)), shared_ns=4e4
        ),
        "decode_attention": DecodeAttention(
            sequences=(1, 64, 256),
            contexts=(0, 1024, 16_384),
            ns=((1e5, 1.1e5, 6e5), (2e5, 1.2e6, 16e6), (6e5, 4.8e6, 64e6)),
        ),
    }
    return OperatorProfile(**(fields | changes))


COST = OperatorCost(profile())


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_step_of_decodes_is_its_parts() -> None:
    linears, elementwise, head = 4e6 + 31 / 63 * 0.2e6, 0.5e6 + 31 / 8191 * 8.5e6, 3e5 + 31 / 255 * 3e5
    at_1024 = 1.1e5 + 31 / 63 * (1.2e6 - 1.1e5)
    at_16k = 6e5 + 31 / 63 * (16e6 - 6e5)
    hand = linears + elementwise + head + at_1024 + (5000 - 1024) / (16_384 - 1024) * (at_16k - at_1024)
    assert COST.decode_ns(32, 32 * 5000, 0) == pytest.approx(hand, abs=3)


def test_a_mixed_step_is_its_parts() -> None:
    shape = StepShape(((1000, 0), (24, 4096)), 64, 64 * 1024, 1024, 65)
    tokens = 1000 + 24 + 64
    rows = 4.1e6 + (tokens - 65) / (8192 - 65) * (300e6 - 4.1e6) + 0.5e6 + (tokens - 1) / 8191 * 8.5e6
    head = 3e5 + 64 / 255 * 3e5
    first = 0.5 * 1000 * 1001 / 2 + 1e5 + 999 / 1023 * 1e5
    x, y = 23 / 1023, 0.5
    grid = (1 - x) * ((1 - y) * 1e5 + y * 3e5) + x * ((1 - y) * 2e5 + y * 9e5)
    second = 0.5 * (24 * 4096 + 24 * 25 / 2) + grid - 4e4
    assert COST.step_ns(shape) == pytest.approx(rows + head + first + second + 1.2e6, abs=4)


def test_host_time_is_of_a_step_and_of_each_row_and_no_jitter_touches_it() -> None:
    slow = OperatorCost(profile(host=Host(step_ns=9e5, sequence_ns=4e4), jitter=0.1))
    shape = StepShape(((100, 0), (50, 0)), 8, 8000, 1000, 10)
    assert slow.step_ns(shape) == pytest.approx(1.1 * COST.step_ns(shape) + 9e5 + 10 * 4e4, abs=6)
    assert slow.decode_ns(8, 8000, 0) == pytest.approx(1.1 * COST.decode_ns(8, 8000, 0) + 9e5 + 8 * 4e4, abs=6)
    assert slow.terms(shape)["rank jitter"] == pytest.approx(0.1 * COST.step_ns(shape), abs=6)


def test_steps_above_the_largest_graph_pay_for_launches() -> None:
    graphs = OperatorCost(profile(graphs=Graphs(largest=64, eager_ns=1e6)))
    assert graphs.decode_ns(64, 1000, 0) == COST.decode_ns(64, 1000, 0)
    assert graphs.decode_ns(65, 1000, 0) == COST.decode_ns(65, 1000, 0) + 1_000_000


def test_uneven_contexts_cost_the_measured_share_of_the_longest() -> None:
    uneven = OperatorCost(profile(skew=Skew(sequences=(1, 256), alpha=(0.25, 0.25))))
    even, longest = COST.decode_ns(64, 64 * 1024, 0), COST.decode_ns(64, 64 * 16_384, 0)
    assert uneven.decode_ns(64, 64 * 1024, 16_384) == pytest.approx(even + 0.25 * (longest - even), abs=3)
    assert uneven.decode_ns(64, 64 * 1024, 1024) == pytest.approx(even, abs=2)
    assert uneven.decode_ns(64, 64 * 1024, 0) == pytest.approx(even, abs=2)  # nobody says which is the longest


def test_a_chunk_of_one_token_costs_no_more_than_a_decode() -> None:
    one = COST.terms(StepShape(((1, 1024),), 4, 4096, 1024, 5))["prefill attention"]
    assert one == pytest.approx(min(1.1e5, 1e5 + 1024 / 8192 * 2e5 + 0.5 * 1025 - 4e4))


def test_what_chunks_share_is_paid_once_a_step() -> None:
    alone, both = COST.terms(StepShape(((500, 0),))), COST.terms(StepShape(((500, 0), (500, 0))))
    assert both["prefill attention"] == pytest.approx(2 * alone["prefill attention"] - 4e4)


def mixed(excess: float) -> MixedAttention:
    return MixedAttention(queries=(1, 1024), contexts=(0,), sequences=(1,), decode_contexts=(0,), ns=(excess, excess))


def test_mixed_steps_cost_their_measured_excess() -> None:
    shape = StepShape(((300, 0), (200, 100)), 64, 64 * 1024, 1024, 66)
    dearer = OperatorCost(profile(mixed_attention=mixed(7e5)))
    assert dearer.step_ns(shape) == pytest.approx(COST.step_ns(shape) + 7e5, abs=2)
    assert dearer.step_ns(shape._replace(decode_sequences=0, decode_context=0)) == COST.step_ns(
        shape._replace(decode_sequences=0, decode_context=0)
    )


def test_mixed_attention_overlaps_down_to_the_dearer_part_at_most() -> None:
    shape = StepShape(((300, 0),), 64, 64 * 1024, 1024, 65)
    box = MixedAttention(queries=(300,), contexts=(0,), sequences=(64,), decode_contexts=(1024,), ns=(-1e9,))
    overlapped = OperatorCost(profile(mixed_attention=box))
    parts = COST.terms(shape)
    saved = min(parts["prefill attention"], parts["decode attention"])
    assert overlapped.step_ns(shape) == pytest.approx(COST.step_ns(shape) - saved, abs=2)
    assert overlapped.terms(shape)["mixed attention"] == pytest.approx(-saved, abs=2)


def test_beyond_the_points_costs_go_on_with_the_slope_of_the_upper_half() -> None:
    assert COST.terms(StepShape(((16_384, 0),)))["linears"] == pytest.approx(300e6 + 8192 * (300e6 - 4.1e6) / 8127)
    far = COST.decode_ns(64, 64 * 32_768, 0) - COST.decode_ns(64, 64 * 16_384, 0)
    assert far == pytest.approx(16_384 * (16e6 - 1.2e6) / (16_384 - 1024), abs=2)


# -- laws --------------------------------------------------------------------------------------------------------------


@law(80)
@given(operator_profiles(), st.integers(1, 600), st.integers(0, 30_000), st.integers(0, 40_000), st.integers(1, 300))
def test_leap_is_its_single_steps_and_lines_say_until_where(
    drawn: OperatorProfile, sequences: int, mean: int, longest: int, n: int
) -> None:
    cost, context = OperatorCost(drawn), sequences * mean + sequences // 2
    steps = [cost.decode_ns(sequences, context + i * sequences, longest + i) for i in range(n)]
    shape = StepShape((), sequences, context, longest, sequences)
    leap = cost.leap_ns(shape, n)
    assert leap.dtype == np.int64
    assert leap.tolist() == steps
    assert cost.step_ns(shape) == steps[0]
    assert steps == sorted(steps)
    fixed, per_context, until = cost.decode_line(sequences, context, longest)
    assert until > context
    for i, ns in enumerate(steps):
        now = context + i * sequences
        if now < until:
            assert int(fixed + per_context * now + 0.5) == ns
            assert cost.decode_line(sequences, now, longest + i)[2] == until


@law(80)
@given(operator_profiles(dips=True), st.integers(1, 5000), st.integers(0, 300), st.integers(0, 30_000))
def test_whole_prompts_cost_what_steps_do_to_the_last_bit(
    drawn: OperatorProfile, query: int, sequences: int, mean: int
) -> None:
    cost, context, longest = OperatorCost(drawn), sequences * mean, 2 * mean * (sequences > 0)
    shape = StepShape(((query, 0),), sequences, context, longest, sequences + 1)
    assert cost.prompt_ns(query, sequences, context, longest) == cost.step_ns(shape)


@law(80)
@given(operator_profiles(dips=True), st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 30_000)), max_size=3),
       st.integers(0, 600), st.integers(0, 30_000), st.integers(0, 40_000))  # fmt: skip
def test_terms_sum_to_the_step(
    drawn: OperatorProfile, prefill: list[tuple[int, int]], sequences: int, mean: int, longest: int
) -> None:
    if not prefill and not sequences:
        return
    shape = StepShape(tuple(prefill), sequences, sequences * mean, longest, sequences)
    cost = OperatorCost(drawn)
    ns = cost.step_ns(shape)
    assert sum(cost.terms(shape).values()) == pytest.approx(ns, rel=1e-9, abs=4 + sequences)


def test_costs_are_straight_for_ever_beyond_the_last_point() -> None:
    assert COST.decode_line(4, 4 * 20_000, 0)[2] == inf


# -- domain ------------------------------------------------------------------------------------------------------------


def test_inside_the_domain_nothing_is_extrapolated() -> None:
    assert COST.extrapolation(StepShape(((8000, 16_384),), 64, 64 * 10_000, 12_000, 65)) is None


def test_leaving_the_domain_says_where_and_by_how_much() -> None:
    text = COST.extrapolation(StepShape(((100, 32_768),), 4, 4 * 32_768, 32_768, 512))
    assert text is not None
    assert "prefill context 32768 is above the measured 16384 (2.0x)" in text
    assert "mean decode context 32768 is above the measured 16384 (2.0x)" in text
    assert "sampled 512 is above the measured 256 (2.0x)" in text
    assert "decode_sequences" not in text
    corner = profile().decode_attention.model_copy(update={"reach": 100_000})
    text = OperatorCost(profile(decode_attention=corner)).extrapolation(StepShape((), 64, 64 * 3125, 3125, 64))
    assert text == "decode_context 200000 is above the measured 100000 (2.0x)"


def test_places_where_a_batch_is_cheaper_than_fewer_longer_contexts_are_known() -> None:
    even = DecodeAttention(sequences=(1, 2), contexts=(512, 1024), ns=((10.0, 20.0), (20.0, 40.0)))
    assert OperatorCost(profile(decode_attention=even)).falls() == []
    table = DecodeAttention(sequences=(1, 2), contexts=(512, 1024), ns=((10.0, 20.0), (15.0, 30.0)))
    assert OperatorCost(profile(decode_attention=table)).falls() == [(1, 2, 1024, 0.25)]


def test_profile_survives_its_file(tmp_path: Any) -> None:
    saved = profile().save(tmp_path / "composed.json")
    assert load_profile(saved) == profile()
    assert load_profile(saved).hash() == profile().hash()
