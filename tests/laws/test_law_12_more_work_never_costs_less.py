"""Roofline costs are non-decreasing in tokens, context and sequences everywhere; fitted profiles too, whatever was fitted.

Profiles of operators: in contexts everywhere; in sequences too, where a decode more has the mean context at least (a short one lowers
the mean); in tokens where their curves do not dip. To a nanosecond or two, since tables hold whole ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.hardware import CATALOG as HARDWARE
from scenarios.models import BYTES
from scenarios.models import CATALOG as MODELS
from serving.plan import StepShape
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from sim.profile import Coefficients, Profile, data_hash
from sim.profile_cost import ProfileCost
from sim.profile_parts import Domain, Range, Source
from sim.profiles import load_profile, shipped_profiles
from sim.roofline import Roofline
from tests.laws.operator_profiles import operator_profiles
from tests.laws.worlds import law


@st.composite
def shapes(draw: st.DrawFn) -> StepShape:
    """Any step with something in it."""
    chunk = st.tuples(st.integers(1, 4000), st.one_of(st.just(0), st.integers(0, 100_000)))
    prefill = tuple(draw(st.lists(chunk, max_size=4)))
    sequences = draw(st.integers(0 if prefill else 1, 600))
    context = draw(st.integers(sequences, sequences * 20_000)) if sequences else 0
    longest = -(-context // sequences) if sequences else 0
    return StepShape(prefill, sequences, context, longest, sequences + draw(st.integers(0, len(prefill))))


def larger(shape: StepShape, more: int) -> dict[str, StepShape]:
    """The same step with more of one thing."""
    s = shape
    found = {
        "a sequence more": s._replace(
            decode_sequences=s.decode_sequences + 1,
            decode_context=s.decode_context + more,
            decode_max_context=max(s.decode_max_context, more),
            sampled=s.sampled + 1,
        ),
        "a chunk more": s._replace(prefill=(*s.prefill, (more, 0))),
        "a chunk more that samples": s._replace(prefill=(*s.prefill, (more, 0)), sampled=s.sampled + 1),
    }
    if s.decode_sequences:
        found["context of decodes"] = s._replace(
            decode_context=s.decode_context + more, decode_max_context=s.decode_max_context + more
        )
    if s.prefill:
        (query, context), *rest = s.prefill
        found["tokens of a chunk"] = s._replace(prefill=((query + more, context), *rest))
        found["context of a chunk"] = s._replace(prefill=((query, context + more), *rest))
    return found


def check(cost: CostModel, shape: StepShape, more: int, but: tuple[str, ...] = (), slack: int = 0) -> None:
    """but: what need not hold. slack: nanoseconds that tables round."""
    base = cost.step_ns(shape)
    assert base >= 0
    for what, bigger in larger(shape, more).items():
        assert cost.step_ns(bigger) >= base - slack or what in but, what


@cache
def roofline(model: str, hardware: str, dtype: str, kv_dtype: str, devices: int) -> Roofline:
    return Roofline(MODELS[model], HARDWARE[hardware], dtype=dtype, kv_dtype=kv_dtype, tensor_parallel_size=devices)


@law(150)
@given(
    st.sampled_from(tuple(MODELS)),
    st.sampled_from(tuple(HARDWARE)),
    st.sampled_from(tuple(BYTES)),
    st.sampled_from(tuple(BYTES)),
    st.data(),
    shapes(),
    st.integers(1, 5000),
)
def test_roofline_never_gets_cheaper_with_more_work(
    model: str, hardware: str, dtype: str, kv_dtype: str, data: st.DataObject, shape: StepShape, more: int
) -> None:
    sizes = MODELS[model].tensor_parallel_sizes() if HARDWARE[hardware].link_bandwidth else (1,)
    check(roofline(model, hardware, dtype, kv_dtype, data.draw(st.sampled_from(sizes))), shape, more)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Anything that the schema lets through: knots that grow, coefficients that are not negative."""
    ns = st.floats(0, 1e7)
    tokens = sorted(draw(st.sets(st.integers(1, 4096), min_size=1, max_size=8)))
    height = 0.0
    dense = []
    for t in tokens:
        height += draw(ns)
        dense.append((t, height))
    some = Range(min=0, max=4096)
    return Profile(
        name="drawn",
        created="2026-01-01T00:00:00+00:00",
        source=Source(device="none", clock="device"),
        model="none",
        dtype="bfloat16",
        kv_dtype="bfloat16",
        domain=Domain(
            tokens=some,
            prefill_query=some,
            prefill_context=some,
            decode_sequences=some,
            decode_context=some,
            sampled=some,
        ),
        dense=tuple(dense),
        coefficients=Coefficients(**{name: draw(ns) for name in Coefficients.model_fields}),
        data_hash=data_hash(()),
    )


@law(150)
@given(profiles(), shapes(), st.integers(1, 5000))
def test_profile_never_gets_cheaper_with_more_work(profile: Profile, shape: StepShape, more: int) -> None:
    check(ProfileCost(profile), shape, more)


def check_operators(cost: CostModel, shape: StepShape, more: int, but: tuple[str, ...] = ()) -> None:
    mean = -(-shape.decode_context // max(shape.decode_sequences, 1))
    check(cost, shape, more, ("a sequence more", *but), slack=2)
    one = shape._replace(
        decode_sequences=shape.decode_sequences + 1,
        decode_context=shape.decode_context + mean + more - 1,
        decode_max_context=max(shape.decode_max_context, mean + more - 1),
        sampled=shape.sampled + 1,
    )
    if "a sequence more" not in but:
        assert cost.step_ns(one) >= cost.step_ns(shape) - 2


@law(150)
@given(operator_profiles(mixes=False), shapes(), st.integers(0, 30_000), st.integers(1, 5000))
def test_operators_never_get_cheaper_with_more_work(
    profile: OperatorProfile, shape: StepShape, longest: int, more: int
) -> None:
    shape = shape._replace(decode_max_context=max(longest, shape.decode_max_context))
    check_operators(OperatorCost(profile), shape, more)


@law(120)
@given(operator_profiles(), shapes(), st.integers(1, 5000))
def test_mixed_steps_never_get_cheaper_with_more_of_a_chunk_or_of_decodes(
    profile: OperatorProfile, shape: StepShape, more: int
) -> None:
    """Several chunks count as one at their mean context, which another chunk lowers: steps with one chunk."""
    if shape.prefill:
        check_operators(
            OperatorCost(profile),
            shape._replace(prefill=shape.prefill[:1]),
            more,
            ("a chunk more", "a chunk more that samples"),
        )


@law(80)
@given(operator_profiles(dips=True), shapes(), st.integers(1, 5000))
def test_dips_of_token_curves_are_all_that_makes_more_context_cheaper(
    profile: OperatorProfile, shape: StepShape, more: int
) -> None:
    one = shape._replace(prefill=shape.prefill[:1])
    if one.tokens:
        tokens = ("a sequence more", "a chunk more", "a chunk more that samples", "tokens of a chunk")
        check_operators(OperatorCost(profile), one, more, tokens)


@cache
def shipped(name: str) -> OperatorCost:
    profile = load_profile(name)
    assert isinstance(profile, OperatorProfile)
    return OperatorCost(profile)


@law(300)
@given(st.sampled_from([name for name in shipped_profiles() if "/" in name]), shapes(), st.integers(1, 5000))
def test_shipped_operators_fall_only_at_the_dips_that_they_name(name: str, shape: StepShape, more: int) -> None:
    cost = shipped(name)
    one = shape._replace(prefill=shape.prefill[:1])
    if not one.tokens:
        return
    base, scale = cost.step_ns(one), 1.0 + cost.profile.jitter
    mean = -(-one.decode_context // max(one.decode_sequences, 1))
    steps = larger(one, more)
    steps["a sequence more"] = one._replace(
        decode_sequences=one.decode_sequences + 1,
        decode_context=one.decode_context + mean,
        decode_max_context=max(one.decode_max_context, mean),
        sampled=one.sampled + 1,
    )
    for what, bigger in steps.items():
        dips = [
            jump.ns
            for jump in cost.profile.jumps
            if jump.kind == "dip" and jump.tokens_from < bigger.tokens and jump.tokens_to > one.tokens
        ]
        assert cost.step_ns(bigger) >= base - scale * sum(dips) - 2, what


@pytest.mark.parametrize("name", [name for name in shipped_profiles() if "/" in name])
def test_every_shipped_profile_names_every_place_where_its_tables_dip(name: str) -> None:
    """Curves are straight between their points, so that points decide; the grids of attention are checked when a file is read."""
    profile = shipped(name).profile
    at = np.unique([t + d for curve in profile.tokens.values() for t in curve.at for d in (0, 1)])
    total = sum(np.interp(at, curve.at, curve.ns) for curve in profile.tokens.values())
    falls = at[:-1][np.diff(total) < -1.0]
    named = [(jump.tokens_from, jump.tokens_to) for jump in profile.jumps if jump.kind == "dip"]
    assert [t for t in falls.tolist() if not any(low <= t < high for low, high in named)] == []
    assert all(np.interp(low, at, total) > np.interp(high, at, total) for low, high in named)
