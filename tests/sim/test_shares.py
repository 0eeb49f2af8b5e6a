"""What cost models say that steps are shared by: the parts are the whole, and each goes to whom it belongs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.hardware import hardware
from scenarios.models import model
from serving.plan import StepShape
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.operator_profile import OperatorProfile
from sim.profile import Profile
from sim.profile_cost import ProfileCost
from sim.profiles import load_profile
from sim.roofline import Roofline
from tests.laws.operator_profiles import operator_profiles
from tests.laws.worlds import law


def parts(cost: CostModel, shape: StepShape) -> tuple[float, ...]:
    """Fixed, tokens, head, decodes, context, and the sum of chunks."""
    columns = {
        "prefill_sequences": len(shape.prefill),
        "prefill_tokens": shape.prefill_tokens,
        "decode_sequences": shape.decode_sequences,
        "decode_context": shape.decode_context,
        "decode_max_context": shape.decode_max_context,
        "sampled": shape.sampled,
    }
    steps = {name: np.array([value]) for name, value in columns.items()}
    query, context = (np.array([chunk[k] for chunk in shape.prefill], dtype=np.int64) for k in (0, 1))
    found = cost.shares(steps, query, context)
    return (*(float(part[0]) for part in found[:5]), float(found.chunks.sum()))


@st.composite
def shapes(draw: st.DrawFn, mixed: bool = True) -> StepShape:
    prefill = tuple(draw(st.lists(st.tuples(st.integers(2, 500), st.integers(0, 5000)), max_size=1)))
    decodes = draw(st.integers(0 if prefill else 1, 40)) if mixed or not prefill else 0
    contexts = draw(st.lists(st.integers(1, 9000), min_size=decodes, max_size=decodes))
    return StepShape(prefill, decodes, sum(contexts), max(contexts, default=0), decodes + len(prefill))


def tabled() -> list[CostModel]:
    profile = load_profile("cpu-avx2-qwen3-tiny")
    assert isinstance(profile, Profile)
    return [
        ProfileCost(profile),
        Roofline(model("Llama-3.1-8B"), hardware("H100")),
        Roofline(model("Qwen3-30B-A3B"), hardware("H200")),
    ]


@pytest.mark.parametrize("cost", tabled(), ids=lambda cost: cost.name)
def test_parts_of_a_step_are_the_whole_of_it(cost: CostModel) -> None:
    @law(60)
    @given(shapes())
    def check(shape: StepShape) -> None:
        assert sum(parts(cost, shape)) == pytest.approx(sum(cost.terms(shape).values()))

    check()


@law(60)
@given(operator_profiles(mixes=False), shapes())
def test_parts_of_a_step_of_operators_are_the_whole_of_it(profile: OperatorProfile, shape: StepShape) -> None:
    cost = OperatorCost(profile)
    assert sum(parts(cost, shape)) == pytest.approx(cost.step_ns(shape), abs=2.0)


@law(30)
@given(operator_profiles(), shapes(mixed=False))
def test_an_excess_of_mixed_steps_is_nobodys_elsewhere(profile: OperatorProfile, shape: StepShape) -> None:
    cost = OperatorCost(profile)
    assert sum(parts(cost, shape)) == pytest.approx(cost.step_ns(shape), abs=2.0)


@pytest.mark.parametrize("cost", tabled(), ids=lambda cost: cost.name)
def test_a_decode_more_takes_no_more_weights_and_a_longer_context_only_attention(cost: CostModel) -> None:
    few = StepShape((), 8, 8000, 1000, 8)
    more = parts(cost, few._replace(decode_sequences=9, decode_context=9000, sampled=9))
    longer = parts(cost, few._replace(decode_context=16000, decode_max_context=2000))
    before = parts(cost, few)
    assert more[0] == before[0] > 0
    assert longer[4] == pytest.approx(2 * before[4])
    assert longer[:4] == before[:4]


def test_a_profile_of_operators_may_dip_without_a_negative_share() -> None:
    @law(30)
    @given(operator_profiles(dips=True), shapes())
    def check(profile: OperatorProfile, shape: StepShape) -> None:
        assert min(parts(OperatorCost(profile), shape)) >= -1e-6

    check()
