"""A replica whose quiet stretches are leaps: n decode steps of one batch, decided once and costed in one go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from serving.fast_scheduler import FastScheduler
from serving.plan import StepShape
from serving.records import RequestLog, StepLog
from serving.request import Request, Status
from sim.cost import CostModel

_LOOP = 48  # steps up to which a plain loop beats numpy


class FastReplica:
    """The same contract and the same records as `sim.replica.Replica`, for the settings of `FastScheduler`.

    A leap lies in `step_ends` until it completes; an arrival in between cuts it at the end of the step that runs.
    """

    def __init__(
        self,
        number: int,
        scheduler: FastScheduler,
        cost: CostModel,
        requests: RequestLog,
        steps: StepLog,
        on_finish: Callable[[Request, int], None] | None = None,
        leaps: bool = True,
    ) -> None:
        self.number = number
        self.scheduler = scheduler
        self.cost = cost
        self.requests = requests
        self.steps = steps
        self.on_finish = on_finish
        self.leaps = leaps
        self.usable = scheduler.config.usable_blocks
        self.outstanding = 0
        self.free_from = 0
        self.ends: int | None = None
        self.step_ends: list[int] = []
        self.step_blocks: list[int] = []
        self.running = self.waiting = 0  # as decided
        self.arrived: list[Request] = []
        self.open: dict[Request, int] = {}  # position in order of submission
        self.submitted = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, request: Request, now: int) -> None:
        """Hands over a request at `now`; the caller has called `advance(now)`."""
        if self.ends is None and not self.has_work and now > self.free_from:
            self.free_from = now
        self.scheduler.add(request)
        self.arrived.append(request)
        self.open[request] = self.submitted
        self.submitted += 1
        self.outstanding += 1

    def advance(self, now: int) -> None:
        """Runs everything that ends, and then everything that starts, before `now`."""
        scheduler = self.scheduler
        while True:
            if self.ends is not None:
                if self.ends >= now:
                    return
                self.complete()
            if self.free_from >= now or not (scheduler.running or scheduler.waiting):
                return
            self.begin(now)

    def cut(self, now: int) -> bool:
        """Shortens a leap to the step that runs at `now`; True if it ends earlier by that."""
        ends = self.step_ends
        kept = bisect_left(ends, now) + 1
        if kept >= len(ends):
            return False
        del ends[kept:]
        self.ends = ends[-1]
        return True

    def begin(self, bound: int | None) -> None:
        """Decides the next step, which starts at `free_from`; goes on with steps like it that start before `bound`."""
        scheduler = self.scheduler
        start = self.free_from
        if self.arrived:
            for request in self.arrived:
                self.steps.visible.extend((scheduler.step, request.index))
            self.arrived.clear()
        scheduler.decide(start)
        self.running, self.waiting = len(scheduler.running), len(scheduler.waiting)
        self.step_blocks = [self.usable - scheduler.pool.free]
        if scheduler.mixed is not None:
            self.ends = start + self.cost.step_ns(scheduler.mixed)
            self.step_ends = [self.ends]
        elif scheduler.sequences:
            self.ends = self._leap(start, bound)
        elif scheduler.preempted:  # it only made room: the next step follows at once
            self.ends = start
            self.step_ends = [start]
        else:
            raise RuntimeError(f"the scheduler has work but schedules nothing (step {scheduler.step - 1})")

    def complete(self) -> None:
        """Ends the step or leap in flight: its tokens are out, and those who have all theirs leave."""
        scheduler, end = self.scheduler, self.step_ends[-1]
        self._record(len(self.step_ends))
        for request, _, _, samples in scheduler.rows:
            if samples and request.first_token_ns < 0:
                request.first_token_ns = end
        self.ends = None
        self.free_from = end
        for request in scheduler.update():
            self.outstanding -= 1
            self.requests.close(request, Status.FINISHED, end, self.number, self.open.pop(request))
            if self.on_finish is not None:
                self.on_finish(request, end)

    def close_open(self, now: int) -> None:
        """Writes the rows of requests that the end of the run finds unfinished, and the steps of a leap that have ended."""
        ended = bisect_left(self.step_ends, now) if self.ends is not None else 0
        if ended:
            self._record(ended)
            self.scheduler.in_flight = False
        for request, submitted in self.open.items():
            request.num_outputs = self.scheduler.outputs_of(request)
            self.requests.close(request, Status.IN_FLIGHT, -1, self.number, submitted)

    def _record(self, n: int) -> None:
        """Logs the first n steps in flight and brings the scheduler there."""
        scheduler, blocks, start = self.scheduler, self.step_blocks, self.free_from
        step = scheduler.step - 1
        chunks = tokens = pairs = 0
        sampled = scheduler.sequences
        if scheduler.mixed is not None:
            sampled = scheduler.mixed.sampled
            for query, before in scheduler.mixed.prefill:
                chunks += 1
                tokens += query
                pairs += query * before + query * (query + 1) // 2
        self.steps.add_leap(
            (
                step,
                n,
                start,
                start,
                chunks,
                tokens,
                pairs,
                scheduler.sequences,
                scheduler.context,
                scheduler.longest,
                sampled,
                self.running,
                self.waiting,
            ),
            self.step_ends,
            blocks,
        )
        for request in scheduler.preempted:
            self.steps.preempted.extend((step, request.index))
        if n > 1:
            scheduler.leap(n - 1, blocks[n - 1] - blocks[0])

    def _leap(self, start: int, bound: int | None) -> int:
        """Ends and blocks in use of the decode step just decided and of those like it; returns the end of the last."""
        scheduler = self.scheduler
        sequences, context, longest = scheduler.sequences, scheduler.context, scheduler.longest
        decode_ns = self.cost.decode_ns
        first = decode_ns(sequences, context, longest)
        end = start + first
        ends = self.step_ends = [end]
        if not self.leaps or scheduler.preempted or (bound is not None and end >= bound):
            return end  # nobody is admitted in a step that preempts, so the next one may differ
        step = scheduler.step
        more = scheduler.last_quiet_step() - step + 1  # steps after the one just decided
        likely = more if bound is None else min(more, (bound - end) // max(first, 1) + 1)
        if likely > _LOOP:
            return self._long_leap(start, bound, likely)
        blocks, due, usable = self.step_blocks, scheduler.due, self.usable
        used, size = blocks[0], len(due)
        for ahead in range(step, step + more):
            used += len(due[-ahead % size])
            if used > usable:
                break
            context += sequences
            longest += 1
            end += decode_ns(sequences, context, longest)
            ends.append(end)
            blocks.append(used)
            if bound is not None and end >= bound:
                break
        return end

    def _long_leap(self, start: int, bound: int | None, more: int) -> int:
        """The same for many steps, by arrays."""
        scheduler = self.scheduler
        due = np.array([len(group) for group in scheduler.due])
        steps = scheduler.step + np.arange(more)
        used = self.step_blocks[0] + np.cumsum(due[-steps % len(due)])
        n = 1 + int(np.searchsorted(used, self.usable, side="right"))
        shape = StepShape((), scheduler.sequences, scheduler.context, scheduler.longest, scheduler.sequences)
        ends = start + np.cumsum(self.cost.leap_ns(shape, n))
        if bound is not None:
            n = min(n, int(np.searchsorted(ends, bound)) + 1)
        self.step_ends = ends[:n].tolist()
        self.step_blocks.extend(used[: n - 1].tolist())
        return self.step_ends[-1]
