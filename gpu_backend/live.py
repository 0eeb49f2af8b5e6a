"""The real-time loop: arrivals wait in real time for an engine that really computes (`--clock wall`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from scenarios.clients import Clients, Sends
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.plan import Executor, StepPlan, StepResult
from serving.records import Records, StepLog
from serving.request import Request, Status
from serving.scheduler import Scheduler
from sim.replica import EMPTY_STEPS_ALLOWED


class _Due:
    """What clients mean to send, by time and then in the order in which it was planned."""

    def __init__(self, sends: Sends) -> None:
        self.heap: list[tuple[int, int, int]] = []
        self.planned = 0
        self.add(sends)

    def add(self, sends: Sends) -> None:
        for row, at in sends:
            heappush(self.heap, (at, self.planned, row))
            self.planned += 1

    def taken(self, now: int) -> Iterator[tuple[int, int]]:
        """Rows that are due, with the time at which they were meant to come."""
        while self.heap and self.heap[0][0] <= now:
            at, _, row = heappop(self.heap)
            yield row, at


def run_wall(
    engine_config: EngineConfig,
    workload: Workload,
    executor: Executor,
    *,
    horizon_ns: int | None = None,
) -> Records:
    """Serves `workload` in real time and returns what happened.

    Arrivals are seen when the next batch is decided; tokens are out when their step has ended. Under asynchronous scheduling the
    next batch is decided while one runs, and waits behind it on the device. Requests that no empty engine could hold are
    rejected when they come, with the reason in `info["rejected"]`.

    Args:
        executor: computes the steps; already warm.
        horizon_ns: end of the run: what runs then stays in flight; None serves everything.
    """
    requests, log = workload.request_log(), StepLog(speculates=engine_config.speculation != "none")
    scheduler, clients = Scheduler(engine_config), Clients(workload)
    due = _Due(clients.first())
    open_requests: dict[int, tuple[Request, int]] = {}  # index -> request, position in order of submission
    in_flight: deque[tuple[StepPlan, int, int]] = deque()  # with the times of its decision and of its submission
    submitted = empty_steps = last_end = 0
    zero = time.perf_counter_ns()

    def end_oldest() -> None:
        """Waits for the oldest step in flight; its tokens are out."""
        nonlocal last_end
        plan, decided, start = in_flight.popleft()
        start = max(start, last_end)  # the device does one after the other
        plan.started(start)
        result = executor.collect() if plan.scheduled else StepResult(0)
        end = last_end = time.perf_counter_ns() - zero if plan.scheduled else start
        log.add(plan, decided, start, end, engine_config.usable_blocks - plan.free_blocks, result)
        plan.ended(end)
        for request in scheduler.update(plan, result.accepted, result.proposed):
            _, position = open_requests.pop(request.index)
            requests.close(request, Status.FINISHED, end, submitted=position)
            due.add(clients.answered(request.index, end))

    while scheduler.has_work or due.heap or in_flight:
        now = time.perf_counter_ns() - zero
        if horizon_ns is not None and now >= horizon_ns:
            break
        arrived = []
        for row, at in due.taken(now):
            request = workload.request(row, at)
            reason = engine_config.why_it_can_never_run(request.prompt_tokens, request.max_tokens)
            if reason is not None:
                requests.reject(request, reason, now)
                due.add(clients.gave_up(now))
                continue
            scheduler.add(request)
            arrived.append(request.index)
            open_requests[request.index] = (request, submitted)
            submitted += 1
        if not scheduler.has_work:
            if in_flight:
                end_oldest()
            else:
                _sleep_until(due.heap[0][0] if due.heap else now, horizon_ns, zero)
            continue

        plan = scheduler.schedule(now)
        for index in arrived:
            log.visible.extend((plan.step, index))
        in_flight.append((plan, now, time.perf_counter_ns() - zero))
        if plan.scheduled:
            executor.submit(plan)
            empty_steps = 0
        else:
            empty_steps += 1
            if empty_steps > EMPTY_STEPS_ALLOWED:
                raise RuntimeError(f"the scheduler has work but schedules nothing (step {plan.step})")
        # A device that has just begun leaves time to decide what comes next.
        if len(in_flight) > (engine_config.async_scheduling and bool(plan.scheduled)):
            end_oldest()

    for plan, _, _ in in_flight:
        if plan.scheduled:
            executor.collect()
    for request, position in open_requests.values():
        requests.close(request, Status.IN_FLIGHT, -1, submitted=position)
    return workload.records(requests, [log], {"clock": "wall"})


def _sleep_until(due: int, horizon_ns: int | None, zero: int) -> None:
    """Idle: sleeps to the next arrival or the end of the run, whichever is first."""
    wake = due if horizon_ns is None else min(due, horizon_ns)
    wait = wake - (time.perf_counter_ns() - zero)
    if wait > 0:
        time.sleep(wait / 1e9)
