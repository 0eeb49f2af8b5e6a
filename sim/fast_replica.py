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

_FINISHED = Status.FINISHED
_LOOP = 48  # steps up to which a plain loop beats numpy


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
        self.owed = 0  # blocks that the leap in flight takes when it completes: a cut one takes fewer
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
        self.scheduler.step -= dropped
        self.owed = self.steps.kv_blocks[-1] - (self.scheduler.usable - self.scheduler.free)
        self.ends = ends[-1]
        return True

    def begin(self, bound: int) -> None:
        """Decides the next step, which starts at `free_from`, and steps like it as long as they start before `bound`."""
        scheduler, steps = self.scheduler, self.steps
        if len(steps.end_ns) > steps.FRESH:
            steps.spill()
        self.first = len(steps.end_ns)
        quiet = self.leaps and scheduler.partial is None and not scheduler.waiting
        if quiet and scheduler.due[scheduler.step % scheduler.block_size] <= scheduler.free:
            self._leap(self.free_from, bound, decided=0)
        else:
            self._decide(self.free_from, bound)
        self.ends = steps.end_ns[-1]

    def _decide(self, start: int, bound: int) -> None:
        """`begin` where prompts, a queue or preemptions are involved."""
        scheduler, steps, cost = self.scheduler, self.steps, self.cost
        step = scheduler.step
        mixed = scheduler.decide(start)
        steps.kv_blocks.append(scheduler.usable - scheduler.free)
        prefill: tuple[tuple[int, int], ...] = ()
        tokens = pairs = 0
        goes_on = False
        if mixed is not None:
            end = start + cost.step_ns(mixed)
            prefill, sequences, context, longest, sampled = mixed
            for query, before in prefill:
                tokens += query
                pairs += query * before + query * (query + 1) // 2
            for request, _, _ in scheduler.rows:
                if request.first_token_ns < 0 and request is not scheduler.partial:
                    request.first_token_ns = end
        else:
            sequences, context, longest = scheduler.sequences, scheduler.context, scheduler.longest
            sampled = sequences
            end = start
            if sequences:
                end += cost.decode_ns(sequences, context, longest)
                # Nobody is admitted in a step that preempts, so the one after it may differ.
                goes_on = self.leaps and not scheduler.preempted and end < bound
            elif not scheduler.preempted:  # else it only made room: the next step follows at once
                raise RuntimeError(f"the scheduler has work but schedules nothing (step {step})")
        steps.end_ns.append(end)
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        prompts = len(prefill), tokens, pairs
        steps.add_leap((step, 1, start, start, *prompts, sequences, context, longest, sampled, running, waiting))
        for request in scheduler.preempted:
            steps.preempted += step, request.index
        if goes_on and scheduler.finishes[0][0] > step:
            self._leap(end, bound, decided=1)

    def _leap(self, end: int, bound: int, decided: int) -> None:
        """Steps from `end` on, each like the one before: the same decodes, one token further.

        That is until one of them ends, blocks run out, or a step ends at `bound` or later. Whoever waits now waits for one of
        these: nothing else changes. `decided`: steps of this kind that the log's last row holds already.
        """
        scheduler, steps = self.scheduler, self.steps
        ends, blocks = steps.end_ns, steps.kv_blocks
        start, step, last = end, scheduler.step, scheduler.finishes[0][0]
        usable, sequences = scheduler.usable, scheduler.decodes
        used = in_use = usable - scheduler.free
        context = total = scheduler.base_sum + sequences * step
        fixed, per_context = self.cost.decode_line(sequences)
        likely = 0
        if last - step > _LOOP:
            likely = min(last - step + 1, 2 + int((bound - end) / (fixed + per_context * context)))
        if likely > _LOOP:
            used = self._long_leap(end, bound, likely)
        else:
            due, size = scheduler.due, scheduler.block_size
            for at in range(step, last + 1):
                used += due[at % size]
                if used > usable:
                    used -= due[at % size]
                    break
                end += int(fixed + per_context * total + 0.5)
                total += sequences
                ends.append(end)
                blocks.append(used)
                if end >= bound:
                    break
        n = len(ends) - self.first - decided
        scheduler.step = step + n
        self.owed = used - in_use
        if decided:
            steps.prolong(n)
        else:
            longest = scheduler.longest_base() + step
            running = len(scheduler.running)
            steps.add_leap((step, n, start, start, 0, 0, 0, sequences, context, longest, sequences, running, 0))

    def _long_leap(self, end: int, bound: int, likely: int) -> int:
        """The steps of a leap by arrays; returns the blocks in use in the last."""
        scheduler, steps = self.scheduler, self.steps
        step, sequences, usable = scheduler.step, scheduler.decodes, scheduler.usable
        in_use = usable - scheduler.free
        used = in_use + np.cumsum(np.array(scheduler.due)[np.arange(step, step + likely) % scheduler.block_size])
        n = int(np.searchsorted(used, usable, side="right"))
        context, longest = scheduler.base_sum + sequences * step, scheduler.longest_base() + step
        later = end + np.cumsum(self.cost.leap_ns(StepShape((), sequences, context, longest, sequences), n))
        n = min(n, int(np.searchsorted(later, bound)) + 1)
        steps.end_ns.extend(later[:n].tolist())
        steps.kv_blocks.extend(used[:n].tolist())
        return int(used[n - 1]) if n else in_use

    def complete(self) -> None:
        """Ends the step or leap in flight: its tokens are out, and those who have all theirs leave."""
        scheduler, end = self.scheduler, self.ends
        assert end is not None
        self.ends, self.free_from = None, end
        if self.owed:
            scheduler.take(self.owed)
            self.owed = 0
        finishes = scheduler.finishes
        if finishes and finishes[0][0] < scheduler.step:
            for request in scheduler.update():
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
            request.num_outputs = scheduler.outputs_of(request, self.ends is not None)
            if request.first_token_ns >= now:
                request.first_token_ns = -1
            self.requests.close(request, Status.IN_FLIGHT, -1, self.number, request.submission)
