"""Contiguous KV memory: everything is reserved before a request starts, and holes may be too narrow for anybody."""

from __future__ import annotations

import pytest

import scenarios
from scenarios.errors import InputError
from serving.config import EngineConfig
from serving.contiguous_pool import ContiguousPool
from serving.fast_scheduler import FastScheduler
from serving.request import Request
from serving.scheduler import Scheduler
from tests.laws.test_law_15_common_random_numbers import OPEN
from tests.serving.driver import Engine, on


def test_contiguous_is_not_for_the_fast_path() -> None:
    assert FastScheduler.supports(EngineConfig(100, enable_prefix_caching=False))
    assert not FastScheduler.supports(EngineConfig(100, enable_prefix_caching=False, kv_allocation="contiguous"))


@on(usable=8, kv_allocation="contiguous", enable_prefix_caching=False)
def test_longest_answer_is_reserved_from_the_start(engine: Engine) -> None:
    """Four blocks of 16 hold 64 tokens, the last of which is never written: as many as the request may become."""
    first = engine.send(10, 5, max_tokens=55)
    engine.send(10, 5, max_tokens=55)
    engine.send(10, 5, max_tokens=5)
    step = engine.step()
    assert first.blocks == [1, 2, 3, 4]
    assert (step.running, step.free) == ([0, 1], 0)
    paged = engine.other(kv_allocation="paged")
    for _ in range(3):
        paged.send(10, 5, max_tokens=55)
    assert paged.step().running == [0, 1, 2]


@on(usable=9, kv_allocation="contiguous", enable_prefix_caching=False)
def test_free_blocks_that_are_not_in_one_piece_are_of_no_use(engine: Engine) -> None:
    for output in (2, 40, 2):
        engine.send(10, output, max_tokens=39)  # three blocks each
    engine.step()
    engine.step()
    waits = engine.send(10, 2, max_tokens=60)  # five blocks
    step = engine.step()
    assert (step.free, step.running) == (6, [1])
    assert waits.blocks == []
    pool: ContiguousPool = engine.scheduler.pool
    assert (pool.free_blocks, pool.largest_hole, pool.holes) == (6, 3, [(1, 3), (7, 3)])
    engine.drain()
    assert pool.holes == [(1, 9)]


@on(usable=12, kv_allocation="contiguous", enable_prefix_caching=False)
def test_first_hole_that_is_wide_enough_is_taken(engine: Engine) -> None:
    for output in (2, 30, 2):
        engine.send(10, output, max_tokens=39)
    engine.step()
    engine.step()
    narrow = engine.send(10, 2, max_tokens=20)
    wide = engine.send(10, 2, max_tokens=60)
    engine.step()
    assert narrow.blocks == [1, 2]
    assert wide.blocks == [7, 8, 9, 10, 11]


@on(usable=8, kv_allocation="contiguous", enable_prefix_caching=False, max_num_batched_tokens=32)
def test_nothing_is_ever_preempted(engine: Engine) -> None:
    for _ in range(6):
        engine.send(30, 40)
    steps = engine.drain()
    assert not any(step.preempted for step in steps)
    assert sum(len(step.sampled) for step in steps) == 6 * 40


@pytest.mark.parametrize("speculation", ["ngram", "draft"])
def test_drafts_stay_inside_what_is_reserved(speculation: str) -> None:
    config = EngineConfig(41, kv_allocation="contiguous", block_size=1, enable_prefix_caching=False, speculation=speculation,
                          num_speculative_tokens=3, async_scheduling=speculation == "draft")  # fmt: skip
    scheduler = Scheduler(config)
    request = Request(0, (("a", 9),), 12)
    scheduler.add(request)
    while scheduler.has_work:
        plan = scheduler.schedule()
        reserved = len(request.blocks)
        assert all(row.context + row.tokens <= reserved for row in plan.scheduled)
        scheduler.update(plan, {0: 1}, {0: 3})
    assert scheduler.free_blocks == 40


@pytest.mark.parametrize(
    ("override", "field"),
    [
        ("engine.enable_prefix_caching=true", "enable_prefix_caching"),
        ("engine.capacity_scheduler_policy=guaranteed_no_evict", "capacity_scheduler_policy"),
        ("engine.preset=sglang@0.5", "capacity_scheduler_policy"),
        ("engine.preemption=swap", "preemption"),
    ],
)
def test_what_contradicts_it_is_refused(override: str, field: str) -> None:
    with pytest.raises(InputError, match=f"engine.{field}: found .* with kv_allocation contiguous; "):
        scenarios.loads(OPEN, overrides=("engine.kv_allocation=contiguous", override))


def test_it_turns_the_prefix_cache_off() -> None:
    scenario = scenarios.loads(OPEN, overrides=("engine.kv_allocation=contiguous",))
    assert not scenario.engine_config().enable_prefix_caching
    assert scenarios.loads(scenario.to_yaml()) == scenario
