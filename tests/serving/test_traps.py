"""Known traps of serving schedulers, each with the scenario that springs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving.config import EngineConfig
from serving.request import Request
from serving.scheduler import LivelockError, Scheduler
from tests.serving.driver import Engine, on

ROOT = Path(__file__).parents[2]


@on(usable=40, max_num_batched_tokens=64)
def test_trap_without_room_for_the_whole_prompt_chunked_prefill_over_admits_and_thrashes(engine: Engine) -> None:
    def steps_and_preemptions(reserve: bool) -> tuple[int, int]:
        fresh = engine.other(scheduler_reserve_full_isl=reserve)
        for _ in range(8):
            fresh.send(512, 64)
        steps = fresh.drain()
        return len(steps), sum(len(step.preempted) for step in steps)

    assert steps_and_preemptions(reserve=True) == (568, 0)
    assert steps_and_preemptions(reserve=False) == (561, 14)


@on(usable=60, max_num_batched_tokens=512)
def test_trap_preempted_request_that_cannot_hit_its_own_blocks_costs_more(engine: Engine) -> None:
    def computed(caching: bool) -> int:
        fresh = engine.other(enable_prefix_caching=caching)
        if not_supported(fresh):
            return -1
        for _ in range(24):
            fresh.send(96, 120)
        steps = fresh.drain()
        assert sum(len(step.preempted) for step in steps) > 20
        return sum(tokens for step in steps for _, tokens in step.scheduled)

    useful = 24 * (96 + 119)
    with_cache, without = computed(True), computed(False)
    assert useful < with_cache < without
    assert without > 1.02 * with_cache


def not_supported(engine: Engine) -> bool:
    supports = getattr(engine.make, "supports", None)
    return supports is not None and not supports(engine.config)


@on(max_num_batched_tokens=100)
def test_trap_hits_counted_once_per_chunk_inflate_the_hit_rate(engine: Engine) -> None:
    engine.send((("a", 160),))
    engine.drain()
    request = engine.send((("a", 160), ("b", 500)))
    steps = engine.drain()
    assert len(steps) == 5
    prefix = engine.scheduler.prefix
    assert prefix.hits == 160
    assert prefix.queries == 160 + request.prompt_tokens
    assert prefix.requests == 2


@on(block_size=16)
def test_trap_fully_cached_prompt_does_not_produce_a_step_of_zero_tokens(engine: Engine) -> None:
    for tokens in (16, 32, 48, 160):
        for _ in range(3):
            engine.send((("a", tokens),))
            (step,) = engine.drain()
            assert all(n > 0 for _, n in step.scheduled)
            assert len(step.scheduled) == 1


@on(block_size=1)
def test_trap_fully_cached_prompt_of_one_token_blocks_computes_its_last_token(engine: Engine) -> None:
    engine.send((("a", 7),))
    engine.drain()
    engine.send((("a", 7),))
    (step,) = engine.drain()
    assert step.scheduled == [(1, 1)]


_ORDER = """
from tests.conformance.random_runs import random_run
from tests.conformance.subjects import SUBJECTS
from tests.conformance.test_fuzz import decisions
for seed in range(1000, 1012):
    run = random_run(seed)
    print([decisions(run, subject.make) for subject in SUBJECTS.values() if subject.supports(run.config)])
"""


def test_trap_order_never_depends_on_hashing_or_identity() -> None:
    """Other hash seeds move every set and dict of strings, and other allocations every id()."""

    def printed(hash_seed: str) -> bytes:
        done = subprocess.run(
            [sys.executable, "-c", _ORDER],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        )
        return done.stdout

    first = printed("0")
    assert len(first) > 20_000
    assert printed("1") == first
    assert printed("4242") == first


@on(usable=100)
def test_trap_a_wrong_block_count_changes_a_saturated_run(engine: Engine) -> None:
    """Decisions must follow the recorded capacity: a tenth less memory makes the same load take more steps."""

    def steps(usable: int) -> int:
        fresh = engine.other(num_gpu_blocks=usable + 1)
        for _ in range(60):
            fresh.send(200, 60)
        return len(fresh.drain())

    assert steps(90) > 1.05 * steps(100)


def test_requests_that_preempt_one_another_for_ever_end_with_a_message() -> None:
    """Equal rank and admission by the first chunk alone: neither gets on, in the engine that is modelled either."""
    config = EngineConfig(
        num_gpu_blocks=9,
        block_size=4,
        max_num_batched_tokens=21,
        long_prefill_token_threshold=3,
        enable_prefix_caching=False,
        policy="priority",
        scheduler_reserve_full_isl=False,
    )
    scheduler = Scheduler(config)
    for i, (prompt, output) in enumerate(((17, 7), (12, 17), (1, 13))):
        scheduler.add(Request(i, ((f"text{i}", prompt),), output))

    def drain() -> None:
        while scheduler.has_work:
            scheduler.update(scheduler.schedule())

    with pytest.raises(LivelockError, match="scheduler_reserve_full_isl: true"):
        drain()
