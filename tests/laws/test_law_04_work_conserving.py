"""An idle replica never leaves waiting a request that policy and admission allow and an empty engine could hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.batching import BATCHINGS
from serving.policies import ORDERS
from serving.request import Status
from serving.scheduler import Scheduler
from tests.conformance.random_runs import random_run
from tests.laws.worlds import World, law, worlds


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("policy", ORDERS)
def test_replica_is_idle_only_while_it_has_no_request(batching: str, policy: str) -> None:
    @law(25)
    @given(worlds())
    def check(world: World) -> None:
        # (Requests of equal rank would take each other's blocks for ever.)
        room = world.engine.scheduler_reserve_full_isl or policy == "priority"
        records = world.with_engine(batching=batching, policy=policy, scheduler_reserve_full_isl=room).run()
        steps, r = records.steps, records.requests
        for replica in range(world.replicas):
            mine = steps["replica"] == replica
            here = (r["replica"] == replica) & (r["status"] == Status.FINISHED)
            arrival, finish = r["arrival_ns"][here], r["finish_ns"][here]
            idle_from = [0, *steps["end_ns"][mine].tolist()]
            idle_until = steps["start_ns"][mine].tolist()
            for begin, end in zip(idle_from, idle_until, strict=False):
                if end > begin:
                    assert not ((arrival < end) & (finish > begin)).any()

    check()


@law(40)
@given(worlds(horizons=True))
def test_step_that_computes_nothing_has_preempted(world: World) -> None:
    records = world.run()
    steps = records.steps
    emptied = {(replica, step) for replica, step, _ in records.preempted.tolist()}
    # One that is decided while another runs may find that nobody needs more than what is in flight.
    ahead = steps["scheduled_ns"] < steps["start_ns"]
    empty = ~ahead & (steps["decode_sequences"] + steps["prefill_sequences"] == 0)
    for replica, step in zip(steps["replica"][empty].tolist(), steps["step"][empty].tolist(), strict=True):
        assert (replica, step) in emptied


@pytest.mark.parametrize("policy", [name for name in ORDERS if name != "priority"])
def test_whoever_is_next_has_no_room_in_any_order(policy: str) -> None:
    @law(30)
    @given(st.integers(50_000, 1_000_000))
    def check(seed: int) -> None:
        check_that_the_next_has_no_room(seed, policy)

    check()


@law(80)
@given(st.integers(50_000, 1_000_000))
def test_whoever_waits_has_no_room(seed: int) -> None:
    check_that_the_next_has_no_room(seed)


def check_that_the_next_has_no_room(seed: int, policy: str | None = None) -> None:
    """Without prefix cache the room that the next of the queue needs is known from outside: it never waits beside it."""
    run = random_run(seed)
    config = run.config if policy is None else replace(run.config, policy=policy)
    if config.enable_prefix_caching or not config.enable_chunked_prefill:
        return
    scheduler = Scheduler(config)
    for request in run.requests():
        scheduler.add(request)
    while scheduler.has_work:
        plan = scheduler.schedule()
        waiting = list(scheduler.waiting)
        budget = config.max_num_batched_tokens - sum(row.tokens for row in plan.scheduled)
        if waiting and not plan.preempted and budget > 0 and plan.running < config.max_num_seqs:
            tokens = waiting[scheduler.order.first(waiting)].num_tokens
            if not config.scheduler_reserve_full_isl:
                tokens = min(tokens, budget, config.long_prefill_token_threshold or budget)
            keep = config.watermark_blocks if plan.running else 0
            assert -(-tokens // config.block_size) > plan.free_blocks - keep
        scheduler.update(plan)
