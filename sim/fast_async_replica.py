"""The fast replica of an engine that schedules asynchronously: a step is decided when the one before it starts.

It is `sim.fast_replica.FastReplica` with two clocks. Decisions are taken at the starts of steps, and what is decided begins
when the step decided before it ends; so the log is one step ahead of the device, and a leap one step longer. An answer that
ends with step s gives its blocks back when s ends, which is before s + 2 is decided.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from serving.fast_async_scheduler import FastAsyncScheduler
from serving.fast_scheduler import FastScheduler
from serving.records import RequestLog, StepLog
from serving.request import Request
from sim.cost import CostModel
from sim.fast_replica import FastReplica
from sim.replica import let_go


class FastAsyncReplica(FastReplica):
    """The same contract and the same records as `sim.replica.Replica` under asynchronous scheduling.

    free_from: when the next decision is due. ends: of the step in flight, usually the one before the last decided. until: when
    the step decided last ends.
    """

    scheduler: FastAsyncScheduler

    def __init__(
        self,
        number: int,
        scheduler: FastAsyncScheduler,
        cost: CostModel,
        requests: RequestLog,
        steps: StepLog,
        on_finish: Callable[[Request, int], None] | None = None,
        leaps: bool = True,
    ) -> None:
        super().__init__(number, scheduler, cost, requests, steps, on_finish, leaps)
        self.restarts = steps.restarts = []
        self.until = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting) or self.until > self.free_from

    @property
    def ends_quietly(self) -> bool:
        """Nobody's answer is complete when the steps in flight end, and there are steps after them."""
        return bool(self.scheduler.running) and not self.scheduler.ending

    def advance(self, now: int) -> None:
        """Runs everything that ends, and then everything that starts, before `now`."""
        if self.ends is not None:
            if self.ends >= now:
                return
            self.complete()
        if self.free_from < now and self.has_work:
            self.begin(now)

    def begin(self, bound: int) -> None:
        """Decides the next step, and all that are decided before `bound`; only to the end of the next leap if somebody watches
        finishes, but at least until a step is in flight."""
        scheduler, now, end = self.scheduler, self.free_from, self.until
        if self.leaving:
            let_go(self.leaving, scheduler, self.steps)
            if not self.has_work:
                return
        running, waiting, finishes, ends = scheduler.running, scheduler.waiting, scheduler.finishes, self.steps.end_ns
        watched = self.on_finish is not None
        if end <= now:
            end = now
            self.restarts.append(scheduler.step)
        while running or waiting:
            start = end
            if finishes and finishes[0][0] < scheduler.step:
                scheduler.foresee()
            if waiting:
                request = scheduler.admit_alone(start)
                end = self._decide(start, bound) if request is None else self._prefill(request, start)
            elif (
                self.leaps
                and scheduler.partial is None
                and not scheduler.ending
                and scheduler.due[scheduler.step % scheduler.block_size] <= scheduler.free
            ):
                end = self._leap(start, bound)
            else:
                end = self._decide(start, bound)
            self.until = end
            # The next is decided when the last of these starts.
            now = start if len(ends) == self.first + 1 else ends[-2]
            if now >= bound or (watched and now > self.free_from):
                self.ends = now
                return
            if scheduler.ending:
                self._finish(now)
        # The step decided last has no rows, or none but wasted ones.
        self.free_from = end
        if end >= bound or watched:
            self.ends = end

    def complete(self) -> None:
        """Ends the step in flight, or the leap but for its last step."""
        scheduler, end = self.scheduler, self.ends
        assert end is not None
        self.ends = None
        self.free_from = end
        if self.owed:
            scheduler.take(self.owed)
            self.owed = 0
        if scheduler.ending:
            self._finish(end)

    def cut(self, now: int) -> bool:
        """Shortens a leap to the step that runs at `now` and the one after it, which has been decided by then."""
        ends, steps = self.steps.end_ns, self.steps
        kept = bisect_left(ends, now, max(self.first - 1, 0)) + 2
        dropped = len(ends) - kept
        if dropped < 1:
            return False
        steps.drop_steps(dropped)
        self.scheduler.step -= dropped
        self.owed = steps.kv_blocks[-1] - (self.scheduler.usable - self.scheduler.free)
        self.ends, self.until = ends[-2], ends[-1]
        return True


def fast_replica(
    number: int,
    scheduler: FastScheduler,
    cost: CostModel,
    requests: RequestLog,
    steps: StepLog,
    on_finish: Callable[[Request, int], None] | None = None,
    leaps: bool = True,
) -> FastReplica:
    """The fast replica of a fast scheduler."""
    if isinstance(scheduler, FastAsyncScheduler):
        return FastAsyncReplica(number, scheduler, cost, requests, steps, on_finish, leaps)
    return FastReplica(number, scheduler, cost, requests, steps, on_finish, leaps)
