"""Queue orders: who is served next and who loses its blocks, each in a case that `fcfs` decides otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from serving.config import EngineConfig
from serving.fast_scheduler import FastScheduler
from serving.policies import ORDERS
from serving.request import Request, Segment, Tags
from serving.scheduler import Scheduler
from tests.laws.test_law_06_policies_are_blind import Poisoned

SYSTEM: Segment = ("system", 64)


class Queue:
    """One engine that runs one request at a time, so that its order shows in who ends when."""

    def __init__(self, policy: str, usable: int = 256, **settings: Any) -> None:
        settings = {"max_num_seqs": 1} | settings
        self.scheduler = Scheduler(EngineConfig(usable + 1, policy=policy, **settings))
        self.sent = 0
        self.now = 0

    def send(
        self,
        prompt: int | tuple[Segment, ...] = 10,
        output: int = 1,
        *,
        arrival: int | None = None,
        max_tokens: int = 50,
        **tags: int,
    ) -> Request:
        i, self.sent = self.sent, self.sent + 1
        text = ((f"own{i}", prompt),) if isinstance(prompt, int) else prompt
        request = Poisoned(i, text, output, max_tokens, arrival_ns=i if arrival is None else arrival)
        request.tags = Tags(**tags)  # type: ignore[arg-type]
        self.scheduler.add(request)
        return request

    def step(self, ns: int = 1) -> list[int]:
        """Who ends by one step, which takes so long."""
        plan = self.scheduler.schedule(self.now)
        self.now += ns
        self.preempted = [request.index for request in plan.preempted]
        return [request.index for request in self.scheduler.update(plan)]

    def drain(self, ns: int = 1) -> list[int]:
        """Who ends, in order."""
        order: list[int] = []
        while self.scheduler.has_work:
            order += self.step(ns)
        return order


def test_every_order_is_told_apart_from_fcfs_by_the_fast_path() -> None:
    for policy in ORDERS:
        assert FastScheduler.supports(EngineConfig(100, policy=policy)) == (policy == "fcfs")


def test_shortest_first_serves_the_shortest_prediction() -> None:
    queue = Queue("shortest_first")
    for tokens in (30, 10, 20, 10):
        queue.send(predicted_tokens=tokens)
    assert queue.drain() == [1, 3, 2, 0]


def test_shortest_first_goes_by_what_is_declared_where_nobody_predicts() -> None:
    queue = Queue("shortest_first")
    for tokens in (30, 10, 20):
        queue.send(max_tokens=tokens)
    assert queue.drain() == [1, 2, 0]


def test_shortest_first_preempts_the_longest_prediction() -> None:
    queue = Queue("shortest_first", usable=3, max_num_seqs=4)
    for tokens in (9, 30, 20):
        queue.send(16, 30, predicted_tokens=tokens)
    queue.step()
    queue.step()
    assert queue.preempted[0] == 1


def test_deadline_serves_the_earliest_limit_that_can_still_be_met() -> None:
    queue = Queue("deadline")
    queue.send(ttft_ns=-1)
    queue.send(ttft_ns=1000)
    queue.send(ttft_ns=400)
    queue.send(ttft_ns=10)
    queue.now = 50  # the last one is late already
    assert queue.drain() == [2, 1, 0, 3]


def test_deadline_looks_at_the_clock_in_every_step() -> None:
    queue = Queue("deadline")
    for limit in (100, 200, 300):
        queue.send(ttft_ns=limit)
    assert queue.drain(ns=250) == [0, 2, 1]


def test_deadline_preempts_the_latest_limit() -> None:
    queue = Queue("deadline", usable=3, max_num_seqs=4)
    for limit in (900, 5000, 1000):
        queue.send(16, 30, ttft_ns=limit)
    queue.step()
    queue.step()
    assert queue.preempted[0] == 1
    assert queue.drain() == [0, 2, 1]


def test_longest_prefix_serves_what_is_in_the_cache_before_it_is_evicted() -> None:
    queue = Queue("longest_prefix")
    queue.send((SYSTEM, ("a", 10)))
    queue.drain()
    queue.send(100)
    queue.send((SYSTEM, ("b", 10)))
    queue.send(((*SYSTEM[:1], 32), ("c", 10)))
    assert queue.drain() == [2, 3, 1]


def test_longest_prefix_lets_the_first_of_equal_beginnings_go_ahead() -> None:
    """The second would compute what the first is about to: it waits behind those of other texts."""
    queue = Queue("longest_prefix", max_num_batched_tokens=16)
    queue.send((SYSTEM, ("a", 10)))
    queue.send((SYSTEM, ("b", 10)))
    queue.send(30)
    queue.step()
    assert [request.index for request in queue.scheduler.waiting] == [2, 1]


def test_longest_prefix_leaves_a_long_queue_as_it_is() -> None:
    for others in (127, 128):
        queue = Queue("longest_prefix")
        queue.send((SYSTEM, ("a", 10)))
        queue.drain()
        for _ in range(others):
            queue.send(20)
        queue.send((SYSTEM, ("b", 10)))
        assert queue.step() == [others + 1 if others + 1 <= 128 else 1]


def test_fair_serves_tenants_in_turn_by_tokens() -> None:
    queue = Queue("fair")
    for _ in range(4):
        queue.send(10, tenant=0)
    for _ in range(2):
        queue.send(30, tenant=1)
    assert queue.drain() == [0, 4, 1, 2, 5, 3]  # counts of 12, 32, 24, 36: then 1's 32 are the least


def test_fair_counts_answers_twice() -> None:
    queue = Queue("fair")
    queue.send(10, 10, tenant=0)
    queue.send(10, 1, tenant=0)
    queue.send(20, 1, tenant=1)
    queue.send(5, 1, tenant=1)
    assert queue.drain() == [0, 2, 3, 1]  # 30 against 22


def test_fair_gives_no_credit_for_being_idle() -> None:
    """A tenant that comes late is lifted to the least of those who wait: it does not shut them out."""
    queue = Queue("fair")
    for _ in range(6):
        queue.send(10, tenant=0)
    for _ in range(3):
        queue.step()
    for _ in range(3):
        queue.send(10, tenant=1)
    assert queue.drain() == [3, 6, 4, 7, 5, 8]


def test_fair_preempts_the_last_of_the_tenant_that_had_most() -> None:
    queue = Queue("fair", usable=5, max_num_seqs=4)
    queue.send(16, 30, tenant=0)
    queue.send(16, 30, tenant=0)
    queue.send(16, 30, tenant=0)
    queue.send(16, 30, tenant=1)
    for _ in range(3):
        queue.step()
        if queue.preempted:
            break
    assert queue.preempted[0] == 2


@pytest.mark.parametrize("policy", ORDERS)
def test_every_order_comes_through_memory_pressure(policy: str) -> None:
    for whole in (True, False):
        if policy == "priority" and not whole:
            continue  # those of equal rank would take each other's blocks for ever, as in the engine modelled
        queue = Queue(policy, usable=8, max_num_seqs=8, max_num_batched_tokens=32, scheduler_reserve_full_isl=whole)
        for i in range(12):
            queue.send(
                30, 40, arrival=0, max_tokens=60, tenant=i % 3, predicted_tokens=20 + 7 * i % 5, ttft_ns=100 * (i % 4)
            )
        assert sorted(queue.drain()) == list(range(12))
