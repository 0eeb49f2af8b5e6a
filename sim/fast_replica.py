"""A replica whose quiet stretches are leaps: n decode steps of one batch, decided once and costed in one go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from serving.fast_scheduler import FastScheduler
from serving.records import RequestLog, StepLog
from serving.request import Request, Status
from sim.cost import CostModel


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
        self.blocks: list[int] = []  # in use, by step
        self.counts = 0, 0  # running and waiting, as decided
        self.arrived: list[Request] = []
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
        request.submission = self.submitted
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
        kept = bisect_left(self.step_ends, now) + 1
        if kept >= len(self.step_ends):
            return False
        del self.step_ends[kept:]
        self.ends = self.step_ends[-1]
        return True

    def begin(self, bound: int) -> None:
        """Decides the next step, which starts at `free_from`; goes on with steps like it that start before `bound`."""
        scheduler, cost, start = self.scheduler, self.cost, self.free_from
        if self.arrived:
            for request in self.arrived:
                self.steps.visible.extend((scheduler.step, request.index))
            self.arrived = []
        mixed = scheduler.decide(start)
        self.blocks = blocks = [self.usable - scheduler.pool.free]
        # Counts are those of the decision: requests that arrive while it runs are not in them.
        self.counts = len(scheduler.running), len(scheduler.waiting)
        if mixed is not None:
            self.ends = end = start + cost.step_ns(mixed)
            self.step_ends = [end]
            return
        sequences, context = scheduler.sequences, scheduler.context
        if sequences:
            end = start + cost.decode_ns(sequences, context, scheduler.longest)
            self.step_ends = ends = [end]
            # Nobody is admitted in a step that preempts, so the one after it may differ.
            if end < bound and self.leaps and not scheduler.preempted:
                end = scheduler.leap(cost, end, bound, ends, blocks)
        elif scheduler.preempted:  # it only made room: the next step follows at once
            end = start
            self.step_ends = [end]
        else:
            raise RuntimeError(f"the scheduler has work but schedules nothing (step {scheduler.step - 1})")
        self.ends = end

    def complete(self) -> None:
        """Ends the step or leap in flight: its tokens are out, and those who have all theirs leave."""
        scheduler, ends = self.scheduler, self.step_ends
        self.ends, end = None, ends[-1]
        self._record(ends, self.blocks)
        self.free_from = end
        if scheduler.rows:
            for request, _, _, samples in scheduler.rows:
                if samples and request.first_token_ns < 0:
                    request.first_token_ns = end
        scheduler.in_flight = False
        finishes = scheduler.finishes
        if finishes and finishes[0][0] < scheduler.step:
            for request in scheduler.update():
                self.outstanding -= 1
                self.requests.close(request, Status.FINISHED, end, self.number, request.submission)
                if self.on_finish is not None:
                    self.on_finish(request, end)

    def close_open(self, now: int) -> None:
        """Writes the rows of requests that the end of the run finds unfinished, and the steps of a leap that have ended."""
        scheduler = self.scheduler
        ended = bisect_left(self.step_ends, now) if self.ends is not None else 0
        if ended:
            self._record(self.step_ends[:ended], self.blocks[:ended])
            scheduler.in_flight = False
        for request in (*scheduler.running, *scheduler.waiting):
            request.num_outputs = scheduler.outputs_of(request)
            self.requests.close(request, Status.IN_FLIGHT, -1, self.number, request.submission)

    def _record(self, ends: list[int], blocks: list[int]) -> None:
        """Logs the steps in flight that have ended and brings the scheduler there."""
        scheduler, steps, start, n = self.scheduler, self.steps, self.free_from, len(ends)
        step, mixed = scheduler.step - 1, scheduler.mixed
        running, waiting = self.counts
        if mixed is None:
            sequences, context = scheduler.sequences, scheduler.context
            longest = scheduler.longest
            row = (step, n, start, start, 0, 0, 0, sequences, context, longest, sequences, running, waiting)
        else:
            prefill, sequences, context, longest, sampled = mixed
            tokens = pairs = 0
            for query, before in prefill:
                tokens += query
                pairs += query * before + query * (query + 1) // 2
            row = (
                *(step, n, start, start, len(prefill), tokens, pairs),
                *(sequences, context, longest, sampled, running, waiting),
            )
        steps.leaps.extend(row)
        steps.end_ns.extend(ends)
        steps.kv_blocks.extend(blocks[:n])
        if n > 1:
            scheduler.commit(n - 1, blocks[n - 1] - blocks[0])
        if scheduler.preempted:
            for request in scheduler.preempted:
                steps.preempted.extend((step, request.index))
