"""The real-time loop: arrivals wait in real time for an engine that really computes (`--clock wall`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

import numpy as np

from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.plan import Executor
from serving.records import Records, RequestLog, StepLog, gather
from serving.request import Request, Status
from serving.scheduler import Scheduler
from sim.replica import EMPTY_STEPS_ALLOWED

_REASONS_KEPT = 20


class _Clients:
    """Who sends what when: rows of the workload in a heap by due time, filled as answers come back."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.due: list[tuple[int, int, int]] = []  # (ns, order of planning, row)
        self.planned = 0
        self.followers: dict[int, list[int]] = {}
        for i in np.flatnonzero(workload.follows >= 0).tolist():
            self.followers.setdefault(int(workload.follows[i]), []).append(i)
        first = np.flatnonzero(workload.follows < 0).tolist()
        self.next_row: Iterator[int] = iter(())
        if workload.concurrency is None:
            for i in first:
                self._plan(i, int(workload.arrival_ns[i]))
        else:
            self.next_row = iter(first)
            for _ in range(min(workload.concurrency, len(first))):
                self._send_next(0, first=True)

    def _plan(self, row: int, at: int) -> None:
        heappush(self.due, (at, self.planned, row))
        self.planned += 1

    def _send_next(self, now: int, first: bool = False) -> None:
        row = next(self.next_row, None)
        if row is not None:
            self._plan(row, now if first else now + int(self.workload.think_ns[row]))

    def arrivals(self, now: int) -> Iterator[Request]:
        """Takes those that are due; they carry the time at which they were meant to come."""
        while self.due and self.due[0][0] <= now:
            at, _, row = heappop(self.due)
            yield self.workload.request(row, at)

    def answered(self, request: Request, now: int) -> None:
        """The answer is complete: later turns follow it, and a closed loop's client goes on."""
        for row in self.followers.pop(request.index, ()):
            self._plan(row, now + int(self.workload.think_ns[row]))
        self.gave_up(now)

    def gave_up(self, now: int) -> None:
        """A request ended without an answer: no turn follows it, but a closed loop's client goes on."""
        if self.workload.concurrency is not None:
            self._send_next(now)


def run_wall(
    engine_config: EngineConfig,
    workload: Workload,
    executor: Executor,
    *,
    horizon_ns: int | None = None,
) -> Records:
    """Serves `workload` in real time and returns what happened.

    Arrivals are seen when the next batch is decided; tokens are out when their step has ended. Requests that no empty engine
    could hold are rejected when they come, with the reason in `info["rejected"]`.

    Args:
        executor: computes the steps; already warm.
        horizon_ns: end of the run: what runs then stays in flight; None serves everything.
    """
    requests, log = RequestLog(len(workload)), StepLog()
    scheduler, clients = Scheduler(engine_config), _Clients(workload)
    open_requests: dict[int, tuple[Request, int]] = {}  # index -> request, position in order of submission
    reasons: list[dict[str, Any]] = []
    submitted = empty_steps = 0
    zero = time.perf_counter_ns()

    while scheduler.has_work or clients.due:
        now = time.perf_counter_ns() - zero
        if horizon_ns is not None and now >= horizon_ns:
            break
        arrived = []
        for request in clients.arrivals(now):
            reason = engine_config.why_it_can_never_run(request.prompt_tokens, request.max_tokens)
            if reason is not None:
                requests.close(request, Status.REJECTED, now)
                clients.gave_up(now)
                if len(reasons) < _REASONS_KEPT:
                    reasons.append({"request": request.index, "reason": reason})
                continue
            scheduler.add(request)
            arrived.append(request.index)
            open_requests[request.index] = (request, submitted)
            submitted += 1
        if not scheduler.has_work:
            _sleep_until(clients.due[0][0] if clients.due else now, horizon_ns, zero)
            continue

        plan = scheduler.schedule(now)
        for index in arrived:
            log.visible.extend((plan.step, index))
        start = end = time.perf_counter_ns() - zero
        for admission in plan.admitted:
            if admission.request.first_scheduled_ns < 0:
                admission.request.first_scheduled_ns = start
        if plan.scheduled:
            executor.submit(plan)
            executor.collect()
            end = time.perf_counter_ns() - zero
            empty_steps = 0
        else:
            empty_steps += 1
            if empty_steps > EMPTY_STEPS_ALLOWED:
                raise RuntimeError(f"the scheduler has work but schedules nothing (step {plan.step})")
        log.add(plan, now, start, end, engine_config.usable_blocks - plan.free_blocks)
        for row in plan.scheduled:
            if row.samples and row.request.first_token_ns < 0:
                row.request.first_token_ns = end
        for request in scheduler.update(plan):
            _, position = open_requests.pop(request.index)
            requests.close(request, Status.FINISHED, end, submitted=position)
            clients.answered(request, end)

    for request, position in open_requests.values():
        requests.close(request, Status.IN_FLIGHT, -1, submitted=position)
    info: dict[str, object] = {"clock": "wall", "rejected": reasons}
    return gather(requests, [log], workload.tenant, workload.session, workload.tenants, info)


def _sleep_until(due: int, horizon_ns: int | None, zero: int) -> None:
    """Idle: sleeps to the next arrival or the end of the run, whichever is first."""
    wake = due if horizon_ns is None else min(due, horizon_ns)
    wait = wake - (time.perf_counter_ns() - zero)
    if wait > 0:
        time.sleep(wait / 1e9)
