"""The readable scheduler and the fast path against the plain one, decision by decision, on random settings."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest

from serving.config import EngineConfig
from serving.plan import StepPlan
from studies.conformance import AnyScheduler, Subject
from tests.conformance.random_runs import Drafter, RandomRun, random_run
from tests.conformance.subjects import SUBJECTS
from tests.oracle.scheduler import OracleScheduler

BATCHES = 8
RUNS_A_BATCH = 50
MOST_STEPS = 10_000


def decisions(run: RandomRun, make: Callable[[EngineConfig], AnyScheduler]) -> list[dict[str, Any]]:
    """What a scheduler decides in every step of a run, and what is left after it."""
    scheduler: Any = make(run.config)
    requests = run.requests()
    alive: set[int] = set()
    log: list[dict[str, Any]] = []
    drafter = Drafter(run)
    in_flight: deque[StepPlan] = deque()
    last_arrival = max((c.arrival_step for c in run.clients), default=0)

    def abort(step: int, before_update: bool) -> list[int]:
        gone = []
        for i, client in enumerate(run.clients):
            if client.abort_step == step and client.abort_before_update == before_update and i in alive:
                assert scheduler.abort(requests[i])
                alive.discard(i)
                gone.append(i)
        return gone

    for step in range(MOST_STEPS):
        for i, client in enumerate(run.clients):
            if client.arrival_step == step:
                scheduler.add(requests[i])
                alive.add(i)
        aborted = abort(step, before_update=False)
        plan = scheduler.schedule()
        record = {
            "step": plan.step,
            "scheduled": [
                (r.request.index, r.tokens, r.context, r.samples, r.drafts, r.padded) for r in plan.scheduled
            ],
            "propose": plan.propose,
            "shape": plan.shape,
            "admitted": [(a.request.index, a.hit_tokens, a.resumed) for a in plan.admitted],
            "preempted": [request.index for request in plan.preempted],
            "counts": (plan.running, plan.waiting, plan.free_blocks),
            "running": [request.index for request in scheduler.running],
            "waiting": [request.index for request in scheduler.waiting],
        }
        aborted += abort(step, before_update=True)
        in_flight.append(plan)
        finished = []
        if len(in_flight) > run.config.async_scheduling:
            due = in_flight.popleft()
            finished = [request.index for request in scheduler.update(due, *drafter.results(due, alive))]
        alive.difference_update(finished)
        p = scheduler.prefix
        log.append(
            record
            | {
                "aborted": aborted,
                "finished": finished,
                "free_after": scheduler.free_blocks,
                "has_work": scheduler.has_work,
                "prefix": (p.requests, p.queries, p.hits),
                "prefix_of_preempted": (p.preempted_requests, p.preempted_queries, p.preempted_hits),
            }
        )
        if not alive and step >= last_arrival:
            assert scheduler.free_blocks == run.config.usable_blocks
            assert not scheduler.has_work
            return log
    raise AssertionError(f"still {sorted(alive)} after {MOST_STEPS} steps")


def first_difference(run: RandomRun, subject: Subject) -> str | None:
    expected = decisions(run, OracleScheduler)
    got = decisions(run, subject.make)
    for step, (a, b) in enumerate(zip(expected, got, strict=False)):
        for field in a:
            if a[field] != b[field]:
                return f"step {step}: {field} should be {a[field]}, is {b[field]}"
    return None if len(expected) == len(got) else f"{len(expected)} steps expected, {len(got)} taken"


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("name", ["readable", "fast"])
def test_random_runs_are_decided_as_by_the_oracle(name: str, batch: int) -> None:
    subject = SUBJECTS[name]
    compared = 0
    for seed in range(batch * RUNS_A_BATCH, (batch + 1) * RUNS_A_BATCH):
        run = random_run(seed, common=seed % 2 == 0)
        if run.clients and subject.supports(run.config):
            difference = first_difference(run, subject)
            assert difference is None, f"seed {seed}: {difference}\n{run.config}\n{run.clients}"
            compared += 1
    assert compared >= 20


def test_random_runs_reach_what_they_are_meant_to_reach() -> None:
    """A fuzz that never preempts proves nothing: how often each rule bites over all seeds."""
    seen: Counter[str] = Counter()
    for seed in range(BATCHES * RUNS_A_BATCH):
        run = random_run(seed, common=seed % 2 == 0)
        if not run.clients:
            continue
        seen["runs"] += 1
        log = decisions(run, OracleScheduler)
        seen["runs with preemption"] += any(step["preempted"] for step in log)
        seen["several victims in one step"] += any(len(step["preempted"]) > 1 for step in log)
        seen["runs with hits"] += log[-1]["prefix"][2] > 0
        seen["runs with hits after preemption"] += log[-1]["prefix_of_preempted"][2] > 0
        seen["runs with aborts"] += any(step["aborted"] for step in log)
        seen["runs with an idle step"] += any(not step["scheduled"] for step in log)
        seen["priority"] += run.config.policy == "priority"
    assert seen["runs"] >= 350
    assert min(seen.values()) >= 10, seen
