"""Leaps on or off, fast path or readable scheduler: identical records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.fast_scheduler import FastScheduler
from sim.operator_cost import OperatorCost
from sim.operator_profile import Host, OperatorProfile
from sim.profile_parts import Noise
from tests.laws.operator_profiles import operator_profiles
from tests.laws.worlds import World, content, law, worlds


@st.composite
def fast_worlds(draw: st.DrawFn) -> World:
    """Only settings of the fast path, and answers long enough to leap."""
    world = draw(worlds(horizons=True, gated=True)).with_engine(
        policy="fcfs", batching="chunked", long_prefill_token_threshold=0, enable_chunked_prefill=True,
        capacity_scheduler_policy="max_utilization", batch_wait_timeout_iters=0, batch_wait_max_tokens_ratio=0.0,
        speculation="none", async_scheduling=draw(st.booleans()), kv_allocation="paged",
        preemption="recompute", swap_blocks=0, offload_blocks=0, pinned_prefixes=(),
    )  # fmt: skip
    budget = max(world.engine.max_num_batched_tokens, world.engine.max_num_seqs)
    return replace(world.with_engine(max_num_batched_tokens=budget), bent=draw(st.booleans()))


@law(80)
@given(fast_worlds())
def test_leaps_do_not_change_a_bit(world: World) -> None:
    assert FastScheduler.supports(world.engine)
    assert content(world.run(leaps=True)) == content(world.run(leaps=False))


@law(80)
@given(fast_worlds())
def test_fast_path_does_not_change_a_bit(world: World) -> None:
    assert content(world.run(fast=True)) == content(world.run(fast=False))


@law(60)
@given(fast_worlds())
def test_leaps_end_where_costs_bend(world: World) -> None:
    world = replace(world, bent=True)
    assert content(world.run(leaps=True)) == content(world.run(fast=False))


@law(40)
@given(fast_worlds(), operator_profiles())
def test_leaps_do_not_change_a_bit_of_operators(world: World, profile: OperatorProfile) -> None:
    cost = OperatorCost(profile.model_copy(update={"host": Host(step_ns=500_000, sequence_ns=20_000)}))
    assert content(world.run(cost=cost)) == content(world.run(cost=cost, fast=False))


@law(50)
@given(fast_worlds(), st.integers(0, 5))
def test_noise_belongs_to_steps_and_not_to_how_they_are_taken(world: World, seed: int) -> None:
    noise = Noise(correlation=0.8, quantiles=(-0.3, -0.05, 0.0, 0.05, 0.9))
    noisy = content(world.run(noise=noise, seed=seed))
    assert noisy == content(world.run(noise=noise, seed=seed, leaps=False))
    assert noisy == content(world.run(noise=noise, seed=seed, fast=False))


@law(25)
@given(worlds(horizons=True))
def test_settings_outside_the_fast_path_do_not_care_either(world: World) -> None:
    assert content(world.run()) == content(world.run(fast=False, leaps=False))


@pytest.mark.parametrize("loop", ["open", "closed", "sessions"])
def test_long_answers_leap_over_block_borders_and_finishes(loop: str) -> None:
    """Answers of hundreds of tokens that end, arrive and run out of blocks in the middle of leaps."""

    @law(40)
    @given(worlds((loop,)), st.integers(3, 8), st.booleans(), st.booleans())
    def check(world: World, times: int, bent: bool, asynchronous: bool) -> None:
        world = replace(world, bent=bent).with_engine(
            policy="fcfs", batching="chunked", long_prefill_token_threshold=0, enable_chunked_prefill=True,
            capacity_scheduler_policy="max_utilization", batch_wait_timeout_iters=0, batch_wait_max_tokens_ratio=0.0,
            speculation="none", async_scheduling=asynchronous, num_gpu_blocks=world.engine.num_gpu_blocks * times, max_num_batched_tokens=256, max_model_len=4096,
        )  # fmt: skip
        world.workload.output_tokens *= times
        world.workload.max_tokens *= times
        assert content(world.run()) == content(world.run(fast=False))

    check()
