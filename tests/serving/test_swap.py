"""Preemption by swapping: what a victim keeps, who comes back when, and what is copied."""

from __future__ import annotations

from serving.host_memory import MoveKind, Slots
from serving.request import Status
from tests.serving.driver import Engine, on

OUT, IN = MoveKind.SWAP_OUT, MoveKind.SWAP_IN
swapping = {"usable": 6, "block_size": 4, "preemption": "swap", "swap_blocks": 8, "enable_prefix_caching": False}


def host_slots_add_up(engine: Engine, slots: int = 8) -> None:
    owned = [slot for request in engine.requests for slot in getattr(request, "host_slots", [])]
    assert sorted([*engine.scheduler.host.swap.free, *owned]) == list(range(slots))


@on(**swapping)
def test_a_victim_keeps_what_was_computed_and_its_blocks_go_out(engine: Engine) -> None:
    first, second = engine.send(8, 9), engine.send(8, 9)
    while not (plan := engine.schedule()).preempted:
        engine.update(plan)
    assert plan.preempted == [second]
    assert second.computed == second.num_tokens - 1 > 8
    moved = [(move.kind, move.slot) for move in plan.moves]
    assert moved == [(OUT, slot) for slot in second.host_slots]
    assert len(moved) == -(-second.computed // 4)
    assert not second.blocks
    assert first.status is Status.RUNNING
    host_slots_add_up(engine)


@on(**swapping)
def test_it_comes_back_with_a_decode_not_with_a_prompt(engine: Engine) -> None:
    _, second = engine.send(8, 9), engine.send(8, 9)
    steps = []
    while engine.scheduler.has_work:
        plan = engine.schedule()
        steps.append((plan, [row.tokens for row in plan.scheduled if row.request is second]))
        engine.update(plan)
        host_slots_add_up(engine)
    left = next(i for i, (plan, _) in enumerate(steps) if plan.preempted)
    back = next(i for i, (plan, _) in enumerate(steps) if any(move.kind is IN for move in plan.moves))
    assert all(not rows for _, rows in steps[left:back])
    assert steps[back][1] == [1]
    out = [move.slot for move in steps[left][0].moves]
    assert [move.slot for move in steps[back][0].moves] == out
    assert second.preemptions == 1
    assert second.status is Status.FINISHED


@on(**{**swapping, "preemption": "recompute"})
def test_recomputing_copies_nothing_and_computes_the_prompt_again(engine: Engine) -> None:
    engine.send(8, 9)
    engine.send(8, 9)
    steps = engine.drain()
    assert [1] in [step.preempted for step in steps]
    assert max(n for step in steps[1:] for i, n in step.scheduled if i == 1) > 8


@on(**swapping)
def test_nobody_new_is_admitted_before_those_swapped_out_are_back(engine: Engine) -> None:
    _, second = engine.send(8, 9), engine.send(8, 9)
    while second.status is not Status.PREEMPTED:
        engine.update(engine.schedule())
    small = engine.send(1, 1)  # for which there would be room
    while second.status is Status.PREEMPTED:
        plan = engine.schedule()
        assert second.status is Status.RUNNING or small.status is Status.WAITING
        assert plan.waiting == 2 or second.status is Status.RUNNING
        engine.update(plan)
    engine.drain()
    assert small.status is Status.FINISHED


@on(**{**swapping, "usable": 9, "swap_blocks": 2})
def test_without_room_in_the_swap_space_a_victim_is_recomputed(engine: Engine) -> None:
    _, second = engine.send(12, 12), engine.send(12, 12)
    while not (plan := engine.schedule()).preempted:
        engine.update(plan)
    assert plan.preempted == [second]
    assert (second.computed, list(second.host_slots), list(plan.moves)) == (0, [], [])
    assert list(engine.scheduler.waiting) == [second]
    engine.update(plan)
    engine.drain()
    host_slots_add_up(engine, 2)


@on(**{**swapping, "enable_prefix_caching": True})
def test_blocks_that_the_device_still_has_are_not_copied_back(engine: Engine) -> None:
    engine.send((("system", 4), ("a", 4)), 9)
    second = engine.send((("system", 4), ("b", 4)), 12)
    kinds: list[tuple[MoveKind, int]] = []
    while engine.scheduler.has_work:
        plan = engine.schedule()
        kinds += [(move.kind, move.block) for move in plan.moves]
        engine.update(plan)
    out, into = ([block for kind, block in kinds if kind is k] for k in (OUT, IN))
    assert second.preemptions >= 1
    assert len(out) > len(into)  # the shared block went out too, and was found again


@on(**swapping)
def test_an_abort_gives_the_slots_back(engine: Engine) -> None:
    _, second = engine.send(8, 9), engine.send(8, 9)
    while second.status is not Status.PREEMPTED:
        engine.update(engine.schedule())
    assert second.host_slots
    assert engine.scheduler.abort(second)
    host_slots_add_up(engine)
    assert len(engine.scheduler.host.swap.free) == 8
    engine.drain()


@on(**swapping, async_scheduling=True)
def test_a_token_in_flight_at_a_swap_may_end_the_request(engine: Engine) -> None:
    """Every length of the second answer, so that one ends just as it is swapped out."""
    ended_swapped = 0
    for answer in range(1, 14):
        fresh = engine.other()
        fresh.send(8, 9)
        second = fresh.send(8, answer, max_tokens=16)
        flying = [fresh.schedule()]
        while fresh.scheduler.has_work or flying:
            if fresh.scheduler.has_work:
                flying.append(fresh.schedule())
            swapped = bool(second.host_slots)
            ended_swapped += 1 in fresh.update(flying.pop(0)) and swapped
            host_slots_add_up(fresh)
        assert second.num_outputs == answer
        assert len(fresh.scheduler.host.swap.free) == 8
        assert fresh.scheduler.free_blocks == 6
    assert ended_swapped


@on(**swapping, batching="prefill_first")
def test_where_prompts_run_alone_the_swapped_return_among_decodes(engine: Engine) -> None:
    engine.send(8, 9)
    second = engine.send(8, 9)
    engine.send(8, 3)
    returned = False
    while engine.scheduler.has_work:
        plan = engine.schedule()
        if any(move.kind is IN for move in plan.moves):
            returned = True
            assert all(row.tokens == 1 for row in plan.scheduled)
        engine.update(plan)
    assert returned
    assert second.status is Status.FINISHED


def test_a_terabyte_of_host_memory_takes_no_memory_here() -> None:
    """Slots are taken in the same order as from a full list, and only those that were used are remembered."""
    slots = Slots(5, 10**15)
    assert [slots.take() for _ in range(3)] == [5, 6, 7]
    slots.give([6, 5])
    assert [slots.take() for _ in range(3)] == [5, 6, 8]
    assert len(slots) == 10**15 - 4
    few = Slots(5, 4)
    few.give([few.take()])
    assert sorted(few) == [5, 6, 7, 8]
