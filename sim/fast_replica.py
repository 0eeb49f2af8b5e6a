"""A replica whose quiet stretches are leaps: n decode steps of one batch, decided once and costed in one go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from serving.fast_scheduler import FastScheduler
from serving.records import RequestLog, StepLog
from serving.request import Request, Status
from sim.cost import CostModel

_FINISHED = Status.FINISHED


class FastReplica:
    """The same contract and the same records as `sim.replica.Replica`, for the settings of `FastScheduler`.

    What is decided is in the log at once: the steps in flight are those of the last row. An arrival cuts a leap at the end of
    the step that runs, and so does the end of the run.
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
        self.outstanding = 0
        self.free_from = 0
        self.ends: int | None = None
        self.first = 0  # where the ends of the steps in flight begin in the log
        self.submitted = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def submit(self, request: Request, now: int) -> None:
        """Hands over a request at `now`; the caller has called `advance(now)`, and `cut(now)` if leaps may go on beyond."""
        scheduler = self.scheduler
        if self.ends is None and now > self.free_from and not (scheduler.running or scheduler.waiting):
            self.free_from = now
        scheduler.add(request)
        self.steps.visible += scheduler.step, request.index
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
        ends = self.steps.end_ns
        kept = bisect_left(ends, now, self.first) + 1
        dropped = len(ends) - kept
        if dropped < 1:
            return False
        self.steps.drop_steps(dropped)
        self.scheduler.cut(dropped, self.steps.kv_blocks[-1])
        self.ends = ends[-1]
        return True

    def begin(self, bound: int) -> None:
        """Decides the next step, which starts at `free_from`; goes on with steps like it that start before `bound`."""
        scheduler, steps, start = self.scheduler, self.steps, self.free_from
        ends = steps.end_ns
        if len(ends) > steps.FRESH:
            steps.spill()
        self.first = len(ends)
        if scheduler.waiting or scheduler.partial is not None or not self.leaps:
            self._decide(start, bound)
        else:
            step = scheduler.step
            n = scheduler.leap(self.cost, start, bound, ends, steps.kv_blocks)
            if n:
                sequences = scheduler.sequences
                steps.add_leap(
                    *(step, n, start, start, 0, 0, 0),
                    *(sequences, scheduler.context, scheduler.longest, sequences, len(scheduler.running), 0),
                )
            else:  # out of blocks
                self._decide(start, bound)
        self.ends = ends[-1]

    def _decide(self, start: int, bound: int) -> None:
        """`begin` where prompts, preemptions or a queue are involved."""
        scheduler, steps, cost = self.scheduler, self.steps, self.cost
        step = scheduler.step
        mixed = scheduler.decide(start)
        steps.kv_blocks.append(scheduler.usable - scheduler.pool.free)
        # Counts are those of the decision: requests that arrive while it runs are not in them.
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        if mixed is not None:
            end = start + cost.step_ns(mixed)
            steps.end_ns.append(end)
            prefill, sequences, context, longest, sampled = mixed
            tokens = pairs = 0
            for query, before in prefill:
                tokens += query
                pairs += query * before + query * (query + 1) // 2
            steps.add_leap(
                *(step, 1, start, start, len(prefill), tokens, pairs),
                *(sequences, context, longest, sampled, running, waiting),
            )
            for request, _, _ in scheduler.rows:
                if request.first_token_ns < 0 and request is not scheduler.partial:
                    request.first_token_ns = end
        else:
            n = 1
            sequences, context, longest = scheduler.sequences, scheduler.context, scheduler.longest
            if sequences:
                end = start + cost.decode_ns(sequences, context, longest)
            elif scheduler.preempted:  # it only made room: the next step follows at once
                end = start
            else:
                raise RuntimeError(f"the scheduler has work but schedules nothing (step {step})")
            steps.end_ns.append(end)
            # Nobody is admitted in a step that preempts, so the one after it may differ.
            if end < bound and self.leaps and not scheduler.preempted:
                if scheduler.finishes[0][0] >= scheduler.step:
                    n += scheduler.leap(cost, end, bound, steps.end_ns, steps.kv_blocks)
            steps.add_leap(step, n, start, start, 0, 0, 0, sequences, context, longest, sequences, running, waiting)
        for request in scheduler.preempted:
            steps.preempted += step, request.index

    def complete(self) -> None:
        """Ends the step or leap in flight: its tokens are out, and those who have all theirs leave."""
        end = self.ends
        assert end is not None
        self.ends, self.free_from = None, end
        for request in self.scheduler.update():
            self.outstanding -= 1
            self.requests.close(request, _FINISHED, end, self.number, request.submission)
            if self.on_finish is not None:
                self.on_finish(request, end)

    def close_open(self, now: int) -> None:
        """Writes the rows of requests that the end of the run finds unfinished, and takes the step that runs then back."""
        scheduler, steps = self.scheduler, self.steps
        if self.ends is not None:
            self.cut(now)
            steps.drop_steps(1)
            if scheduler.preempted:
                del steps.preempted[-2 * len(scheduler.preempted) :]
        while steps.visible and steps.visible[-2] >= scheduler.step:  # no step was decided with it
            del steps.visible[-2:]
        for request in (*scheduler.running, *scheduler.waiting):
            request.num_outputs = scheduler.outputs_of(request)
            if request.first_token_ns >= now:
                request.first_token_ns = -1
            self.requests.close(request, Status.IN_FLIGHT, -1, self.number, request.submission)
