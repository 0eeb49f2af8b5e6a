"""The real-time loop: arrivals wait in real time for an engine that really computes (`--clock wall`)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

from scenarios.client_behaviour import Retries
from scenarios.clients import Clients, Sends
from scenarios.workload import Workload
from serving.admission import AdmissionControl, Load
from serving.config import EngineConfig
from serving.degradation import Ladder
from serving.front_end import FrontEnd
from serving.plan import Executor, StepPlan, StepResult
from serving.records import Records, StepLog
from serving.request import Cause, Request, Status
from serving.scheduler import Scheduler
from sim.front import NOTHING, REFUSED, Cut, Front, degrade, note_answer, requote
from sim.replica import EMPTY_STEPS_ALLOWED, let_go, staying

Action = Callable[[int], None]
"""What is done about something that was due, at the time at which that is seen."""


def run_wall(
    engine_config: EngineConfig,
    workload: Workload,
    executor: Executor,
    *,
    horizon_ns: int | None = None,
    front: Front = NOTHING,
) -> Records:
    """Serves `workload` in real time and returns what happened.

    Arrivals and time-outs are seen when the next batch is decided; tokens are out when their step has ended. Under asynchronous
    scheduling the next batch is decided while one runs, and waits behind it on the device. Requests that no empty engine could hold
    are rejected when they come, with the reason in `info["rejected"]`.

    Args:
        executor: computes the steps; already warm.
        horizon_ns: end of the run: what runs then stays in flight; None serves everything.
        front: what stands before the engine. Its front end is not run: a request waits for as long as one would take.
    """
    return _Live(engine_config, workload, executor, front).run(horizon_ns)


class _Live:
    """State of one run in real time.

    due: heap of what is to be done, by time and then in the order in which it was planned. expected: entries of it that bring requests.
    open: requests that have not ended; with their position in order of submission once the engine has them.
    """

    def __init__(self, config: EngineConfig, workload: Workload, executor: Executor, front: Front) -> None:
        self.config = config
        self.workload = workload
        self.executor = executor
        self.front = front
        self.front_end = None if front.front_end is None else FrontEnd(front.front_end)
        self.ladder = Ladder(front.rungs) if front.rungs else None
        self.admission = None if front.limits is None else AdmissionControl(front.limits)
        self.retries = None if front.patience is None else Retries(front.patience, len(workload))
        self.clients = Clients(workload)
        self.scheduler = Scheduler(config)
        self.requests = workload.request_log()
        self.log = StepLog(speculates=config.speculation != "none")
        self.due: list[tuple[int, int, bool, Action]] = []
        self.planned = self.expected = 0
        self.open: dict[int, tuple[Request, int]] = {}
        self.leaving: dict[Request, None] = {}
        self.arrived: list[int] = []  # since the last decision
        self.cut_answers: Cut = {}
        self.in_flight: deque[tuple[StepPlan, int, int]] = (
            deque()
        )  # with the times of its decision and of its submission
        self.submitted = self.empty_steps = self.last_end = 0
        self.zero = 0

    def run(self, horizon_ns: int | None) -> Records:
        self.zero = time.perf_counter_ns()
        self._send_later(self.clients.first())
        while self.scheduler.has_work or self.expected or self.in_flight:
            now = self._now()
            if horizon_ns is not None and now >= horizon_ns:
                break
            while self.due and self.due[0][0] <= now:
                _, _, brings, action = heappop(self.due)
                self.expected -= brings
                action(now)
            let_go(self.leaving, self.scheduler, self.log)
            if self.scheduler.has_work:
                self._step(now)
            elif self.in_flight:
                self._end_oldest()
            elif self.due:
                self._sleep_until(self.due[0][0], horizon_ns)
        for plan, _, _ in self.in_flight:
            if plan.scheduled:
                self.executor.collect()
        for request, position in self.open.values():
            self.requests.close(request, Status.IN_FLIGHT, -1, submitted=position)
        info: dict[str, object] = {"clock": "wall"}
        if self.ladder is not None:
            info["ladder"] = self.ladder.history
        return self.workload.records(self.requests, [self.log], info)

    def _now(self) -> int:
        return time.perf_counter_ns() - self.zero

    def _sleep_until(self, due: int, horizon_ns: int | None) -> None:
        """Idle: sleeps to the next event or the end of the run, whichever is first."""
        wait = (due if horizon_ns is None else min(due, horizon_ns)) - self._now()
        if wait > 0:
            time.sleep(wait / 1e9)

    # -- the engine ----------------------------------------------------------------------------------------------------

    def _step(self, now: int) -> None:
        plan = self.scheduler.schedule(now)
        for index in self.arrived:
            self.log.visible.extend((plan.step, index))
        self.arrived.clear()
        self.in_flight.append((plan, now, self._now()))
        if plan.scheduled:
            self.executor.submit(plan)
            self.empty_steps = 0
        else:
            self.empty_steps += 1
            if self.empty_steps > EMPTY_STEPS_ALLOWED:
                raise RuntimeError(f"the scheduler has work but schedules nothing (step {plan.step})")
        # A device that has just begun leaves time to decide what comes next.
        if len(self.in_flight) > (self.config.async_scheduling and bool(plan.scheduled)):
            self._end_oldest()

    def _end_oldest(self) -> None:
        """Waits for the oldest step in flight; its tokens are out."""
        plan, decided, start = self.in_flight.popleft()
        start = max(start, self.last_end)  # the device does one after the other
        plan.started(start)
        result = self.executor.collect() if plan.scheduled else StepResult(0)
        end = self.last_end = self._now() if plan.scheduled else start
        self.log.add(plan, decided, start, end, self.config.usable_blocks - plan.free_blocks, result)
        plan.ended(end)
        for request in self.scheduler.update(plan, result.accepted, result.proposed):
            _, position = self.open.pop(request.index)
            self.requests.close(request, Status.FINISHED, end, submitted=position)
            note_answer(self.cut_answers, request, self.workload)
            self._send_later(self.clients.answered(request.index % len(self.workload), end))

    # -- a request's way to it -----------------------------------------------------------------------------------------

    def _at(self, at: int, action: Action, brings: bool = False) -> None:
        heappush(self.due, (at, self.planned, brings, action))
        self.planned += 1
        self.expected += brings

    def _send_later(self, sends: Sends) -> None:
        for row, at in sends:
            self._at(at, partial(self._send, row, at), brings=True)

    def _send(self, row: int, at: int, now: int) -> None:
        """A client meant to send this row at `at`."""
        request = self.workload.request(row, at)
        if self.cut_answers:
            requote(request, self.cut_answers, self.workload)
        self.open[row] = (request, -1)
        patience = self.front.patience
        if patience is not None and patience.first_token_ns is not None:
            self._at(at + patience.first_token_ns, partial(self._client_sees_nothing, request))
        if patience is not None and patience.answer_ns is not None:
            self._at(at + patience.answer_ns, partial(self._end_early, request, Status.ABORTED, Cause.CLIENT_TIMEOUT))
        if self.front_end is None:
            self._enter(request, now)
        else:
            self._at(self.front_end.take(request, at), partial(self._enter, request), brings=True)

    def _enter(self, request: Request, now: int) -> None:
        """The front end hands a request on."""
        if request.index not in self.open:  # its client has left meanwhile
            return
        if self.ladder is not None:
            level = self.ladder.look([self._load()], now)
            if level:
                effects = self.ladder.effects[level]
                degrade(request, self.workload, effects, level)
                if (cause := effects.refuses(request)) is not Cause.NONE:
                    self._refuse(request, now, cause)
                    return
        reason = self.config.why_it_can_never_run(request.prompt_tokens, request.max_tokens)
        if reason is not None:
            del self.open[request.index]
            self.requests.reject(request, reason, now)
            self._send_later(self.clients.gave_up(now))
            return
        if self.admission is not None:
            cause, pushed_out = self.admission.decide(request, self._load(), now)
            if cause is not Cause.NONE:
                self._refuse(request, now, cause)
                return
            for victim in pushed_out:
                self._end_early(victim, Status.REJECTED, Cause.SHED, now)
        self.scheduler.add(request)
        self.arrived.append(request.index)
        self.open[request.index] = (request, self.submitted)
        self.submitted += 1
        limit = self.front.queue_timeout_ns
        if limit is not None:
            self._at(now + limit, partial(self._queue_times_out, request))

    def _load(self) -> Load:
        scheduler, config = self.scheduler, self.config
        in_use = config.usable_blocks - scheduler.free_blocks
        waiting = staying(scheduler.waiting, self.leaving)
        return Load(waiting, len(scheduler.running), config.max_num_seqs, in_use / config.usable_blocks)

    # -- ends without an answer ----------------------------------------------------------------------------------------

    def _refuse(self, request: Request, now: int, cause: Cause) -> None:
        del self.open[request.index]
        self.requests.reject(request, REFUSED[cause], now, cause)
        self._unanswered(request, now, refused=True)

    def _client_sees_nothing(self, request: Request, now: int) -> None:
        if request.first_token_ns < 0:
            self._end_early(request, Status.ABORTED, Cause.CLIENT_TIMEOUT, now)

    def _queue_times_out(self, request: Request, now: int) -> None:
        if request.status is Status.WAITING:
            self._end_early(request, Status.TIMED_OUT, Cause.QUEUE_TIMEOUT, now)

    def _end_early(self, request: Request, status: Status, cause: Cause, now: int) -> None:
        """A request is given up, unless it has ended by now."""
        if request.index not in self.open:
            return
        _, position = self.open.pop(request.index)
        self.requests.close(request, status, now, submitted=position, cause=cause)
        if position >= 0:
            self.leaving[request] = None
        self._unanswered(request, now, refused=cause is Cause.SHED)

    def _unanswered(self, request: Request, now: int, refused: bool) -> None:
        """Its client tries again, or does without."""
        again = [] if self.retries is None else self.retries.after(request.index, now, refused)
        self._send_later(again or self.clients.gave_up(now))
