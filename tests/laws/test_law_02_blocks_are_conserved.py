"""KV blocks: free + owned + cached = total after every step; nothing owned when idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.request import Request
from serving.scheduler import Scheduler
from tests.conformance.random_runs import RandomRun, random_run
from tests.laws.worlds import World, law, worlds


@law(40)
@given(worlds(horizons=True, gated=True))
def test_no_step_owns_more_blocks_than_there_are(world: World) -> None:
    used = world.run().steps["kv_blocks"]
    assert (used >= 0).all()
    assert (used <= world.engine.usable_blocks).all()


@law(40)
@given(worlds(loops=("open",), most_replicas=1))
def test_owned_blocks_hold_the_tokens_of_those_running(world: World) -> None:
    """Without sharing, the blocks in use are those that the contexts and chunks of the step fill, or more by those that
    wait for their next chunk."""
    world = world.with_engine(enable_prefix_caching=False, batching="chunked")
    steps = world.run().steps
    tokens = steps["decode_context"] + steps["decode_sequences"] + steps["prefill_tokens"]
    assert (steps["kv_blocks"] * world.engine.block_size >= tokens).all()


def owners(run: RandomRun):  # type: ignore[no-untyped-def]
    """After each half step of the readable scheduler: block ids by request, and the count of free ones."""
    scheduler = Scheduler(run.config)
    requests = run.requests()
    left = set(range(len(requests)))
    step = 0
    while left or scheduler.has_work:
        for i in sorted(left):
            if run.clients[i].arrival_step <= step:
                scheduler.add(requests[i])
                left.discard(i)
        plan = scheduler.schedule()
        yield [list(r.blocks) for r in scheduler.running], scheduler.free_blocks
        scheduler.update(plan)
        yield [list(r.blocks) for r in scheduler.running], scheduler.free_blocks
        step += 1


@law(40)
@given(st.integers(10_000, 1_000_000))
def test_free_and_owned_blocks_add_up_after_every_step(seed: int) -> None:
    run = random_run(seed)
    last: tuple[list[list[int]], int] = ([], run.config.usable_blocks)
    for tables, free in owners(run):
        owned = {block for table in tables for block in table}
        assert len(owned) + free == run.config.usable_blocks
        assert owned <= set(range(1, run.config.usable_blocks + 1))
        assert all(len(set(table)) == len(table) for table in tables)
        last = tables, free
    assert last == ([], run.config.usable_blocks)


@pytest.mark.parametrize("seed", range(20_000, 20_020))
def test_without_sharing_every_block_has_one_owner(seed: int) -> None:
    run = random_run(seed)
    if run.config.enable_prefix_caching:
        run = random_run(seed + 100)
    for tables, _ in owners(run):
        blocks = [block for table in tables for block in table]
        if not run.config.enable_prefix_caching:
            assert len(blocks) == len(set(blocks))


def kept(scheduler: Scheduler, requests: list[Request]) -> None:
    """Every block and every slot of the host is where it belongs, once."""
    config, pool, host = scheduler.config, scheduler.pool, scheduler.host
    owned = {block for request in requests for block in getattr(request, "blocks", ())}
    here = [*owned, *pool.queue, *pool.pinned.values()]
    assert sorted(here) == list(range(1, config.usable_blocks + 1))
    assert pool.free_blocks == len(pool.queue)
    away = [slot for request in requests for slot in getattr(request, "host_slots", ())]
    swap_blocks = config.swap_blocks if config.preemption == "swap" else 0
    assert sorted([*away, *host.swap.free]) == list(range(swap_blocks))
    if host.tier is not None:
        cached = sorted([*host.tier.slots.values(), *host.tier.free])
        assert cached == list(range(config.swap_blocks, config.host_blocks))


def every_step_keeps_its_blocks(world: World) -> None:
    """Drives the scheduler by hand and looks after each of its decisions."""
    engine = world.engine
    scheduler = Scheduler(engine)
    fit = engine.fits(world.workload.prompt_tokens, world.workload.max_tokens).tolist()
    requests = [world.workload.request(i, i) for i in range(len(fit)) if fit[i]]
    coming, flying = list(requests), []
    while coming or scheduler.has_work or flying:
        if coming:
            scheduler.add(coming.pop(0))
        if scheduler.has_work:
            flying.append(scheduler.schedule())
            kept(scheduler, requests)
        if len(flying) > engine.async_scheduling or not scheduler.has_work:
            plan = flying.pop(0)
            rows = [row.request.index for row in plan.scheduled]
            scheduler.update(plan, dict.fromkeys(rows, 1), dict.fromkeys(rows, 2))
            kept(scheduler, requests)
    assert not any(request.blocks or request.host_slots for request in requests)


@law(60)
@given(worlds(loops=("open",), most_replicas=1))
def test_blocks_and_host_slots_add_up_after_every_step(world: World) -> None:
    if world.engine.kv_allocation == "paged":
        every_step_keeps_its_blocks(world)
