"""A replica whose quiet stretches are leaps: n decode steps of one batch, decided once and costed in one go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from serving.admission import Load
from serving.fast_scheduler import FastScheduler
from serving.plan import StepShape
from serving.records import RequestLog, StepLog, pack_leap
from serving.request import Cause, Request, Status
from serving.row_log import pack_chunk
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.replica import let_go, staying
from sim.tabled_cost import TabledCost

_FINISHED = Status.FINISHED
_LOOP = 48  # steps up to which a plain loop beats numpy


class FastReplica:
    """The same contract and the same records as `sim.replica.Replica`, for the settings of `FastScheduler`.

    What is decided is in the log at once: the steps in flight are those of the last row. An arrival cuts a leap at the end of
    the step that runs, and so does the end of the run.

    ahead: steps that are decided before the one in flight has ended (`sim.fast_async_replica`).
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
        self.pool = 0
        self.scheduler = scheduler
        self.cost = cost
        self.prompt_ns = _prompt_ns(cost)
        self.requests = requests
        self.steps = steps
        self.on_finish = on_finish
        self.leaps = leaps
        self.ahead = int(scheduler.asynchronous)
        self.outstanding = 0
        self.free_from = 0
        self.ends: int | None = None
        self.first = 0  # where the ends of the steps in flight begin in the log
        self.owed = 0  # blocks that the leap in flight takes when it completes: a cut one takes fewer
        self.submitted = 0
        self.leaving: dict[Request, None] = {}  # aborted, and not let go yet

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    @property
    def ends_quietly(self) -> bool:
        """Nobody's answer is complete when the steps in flight end, and there are steps after them."""
        finishes = self.scheduler.finishes
        return not finishes or finishes[0][0] >= self.scheduler.step

    def submit(self, request: Request, now: int) -> None:
        """Hands over a request at `now`; the caller has called `advance(now)`, and `cut(now)` if leaps may go on beyond."""
        scheduler = self.scheduler
        if self.ends is None and now > self.free_from and not (scheduler.running or scheduler.waiting):
            self.free_from = now
        scheduler.add(request)
        self.steps.visible += scheduler.step, request.index
        request.submission = submitted = self.submitted
        self.submitted = submitted + 1
        self.outstanding += 1

    def advance(self, now: int) -> None:
        """Runs everything that ends, and then everything that starts, before `now`."""
        if self.ends is not None:
            if self.ends >= now:
                return
            self.complete()
        if self.free_from < now and (self.scheduler.running or self.scheduler.waiting):
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
        """Decides the next step, which starts at `free_from`, and runs all that start before `bound`; only to the end of the
        next leap if somebody watches finishes, since what they do about one comes before the next step.
        """
        scheduler, end = self.scheduler, self.free_from
        if self.leaving:
            let_go(self.leaving, scheduler, self.steps)
            if not self.has_work:
                return
        running, waiting, finishes = scheduler.running, scheduler.waiting, scheduler.finishes
        watched = self.on_finish is not None
        while True:
            if waiting:
                request = scheduler.admit_alone(end)
                end = self._decide(end, bound) if request is None else self._prefill(request, end)
            elif (
                self.leaps
                and scheduler.partial is None
                and scheduler.due[scheduler.step % scheduler.block_size] <= scheduler.free
            ):
                end = self._leap(end, bound)
            else:
                end = self._decide(end, bound)
            if end >= bound or watched:
                self.ends = end
                return
            if finishes and finishes[0][0] < scheduler.step:
                self._finish(end)
            if not running and not waiting:
                self.free_from = end
                return

    def complete(self) -> None:
        """Ends the step or leap in flight: its tokens are out, and those who have all theirs leave."""
        scheduler, end = self.scheduler, self.ends
        assert end is not None
        self.ends = None
        self.free_from = end
        if self.owed:
            scheduler.take(self.owed)
            self.owed = 0
        if scheduler.finishes and scheduler.finishes[0][0] < scheduler.step:
            self._finish(end)

    def _finish(self, now: int) -> None:
        requests, number, on_finish, steps = self.requests, self.number, self.on_finish, self.steps
        leaving = self.leaving
        for request in self.scheduler.update():
            if leaving and request in leaving:  # its answer is complete, but its client has left
                del leaving[request]
                continue
            self.outstanding -= 1
            requests.close(request, _FINISHED, now, number, request.submission)
            if on_finish is not None:
                on_finish(request, now)
        if len(steps.end_ns) > steps.FRESH:
            steps.spill(2 * self.ahead)

    def _prefill(self, request: Request, start: int) -> int:
        """The step that admits `request` whole, and nobody else, as has just been decided; returns when it ends."""
        scheduler, steps = self.scheduler, self.steps
        tokens, sequences = request.prompt_tokens, scheduler.sequences
        context, longest = scheduler.context, scheduler.longest
        prompt_ns = self.prompt_ns
        end = request.first_token_ns = start + prompt_ns(tokens, sequences, context, longest)
        ends = steps.end_ns
        self.first = len(ends)
        ends.append(end)
        steps.kv_blocks.append(scheduler.usable - scheduler.free)
        step, pairs, running = scheduler.step - 1, tokens * (tokens + 1) // 2, sequences + 1
        steps.leaps.frombytes(
            pack_leap(
                step, 1, start, start, 1, tokens, pairs, sequences, context, longest, running, running, 0, request.index
            )
        )
        return end

    def _leap(self, start: int, bound: int, decided: int = 0) -> int:
        """Steps that are decided before `bound`, each like the one before: the same decodes, one token further. They end with the
        first answer that is complete, when blocks run out, or where costs leave their straight stretch.

        Args:
            start: when the first of them starts.
            decided: steps of this kind that have been decided in full before them: they share a row of the log.

        Returns:
            the end of the last.
        """
        scheduler, steps = self.scheduler, self.steps
        ends, blocks = steps.end_ns, steps.kv_blocks
        step, last, sequences = scheduler.step, scheduler.finishes[0][0], scheduler.decodes
        context = scheduler.base_sum + sequences * step
        base_max = scheduler.base_max
        longest = (scheduler.find_base_max() if base_max is None else base_max) + step
        fixed, per_context, until = self.cost.decode_line(sequences, context, longest)
        if context + sequences * (last - step) >= until:  # costs bend: the next leap begins there
            last = step - int((context - until) // sequences) - 1
        usable = scheduler.usable
        used = in_use = usable - scheduler.free
        end, before, beyond = start, len(ends), self.ahead if start < bound else 0
        due, size = scheduler.due, scheduler.block_size
        # Doubles, exact for such counts, are multiplied faster than integers.
        total, more = context + 0.0, sequences + 0.0
        for at in range(step, last + 1 if last - step < _LOOP else step + _LOOP):
            used += due[at % size]
            if used > usable:
                used = blocks[-1]
                break
            end += int(fixed + per_context * total + 0.5)
            total += more
            ends.append(end)
            blocks.append(used)
            if end >= bound:
                if not beyond:
                    break
                beyond = 0
        else:
            if at < last:
                shape = StepShape((), sequences, int(total), longest + at + 1 - step, sequences)
                end, used = self._long_leap(at + 1, last, shape, fixed + per_context * total, end, bound, used, beyond)
        n = len(ends) - before
        scheduler.step = step + n
        if self.on_finish is not None:
            self.owed = used - in_use  # not taken yet: an arrival may cut the leap
        elif scheduler.cache is None:
            scheduler.free = usable - used
        else:
            scheduler.take(used - in_use)
        if decided:
            steps.prolong(n)
        else:
            self.first = before
            steps.leaps.frombytes(
                pack_leap(step, n, start, start, 0, 0, 0, sequences, context, longest, sequences, sequences, 0, -1)
            )
        return end

    def _long_leap(
        self, step: int, last: int, shape: StepShape, shortest: float, end: int, bound: int, used: int, beyond: int
    ) -> tuple[int, int]:
        """The rest of a leap, from `step`, which has `shape` and is the `shortest`, to `last` at most, by arrays, with `beyond`
        after those that start before `bound`; returns when it ends and the blocks then in use."""
        scheduler, steps = self.scheduler, self.steps
        # Steps never get shorter while contexts grow, so that these reach `bound`.
        n = min(last - step + 1, 2 + beyond + int((bound - end) / shortest))
        blocks = used + np.cumsum(np.array(scheduler.due)[np.arange(step, step + n) % scheduler.block_size])
        n = int(np.searchsorted(blocks, scheduler.usable, side="right"))
        if not n:
            return end, used
        ends = end + np.cumsum(self.cost.leap_ns(shape, n))
        n = min(n, int(np.searchsorted(ends, bound)) + 1 + beyond)
        steps.end_ns.extend(ends[:n].tolist())
        steps.kv_blocks.extend(blocks[:n].tolist())
        return steps.end_ns[-1], steps.kv_blocks[-1]

    def _decide(self, start: int, bound: int) -> int:
        """A step of which prompts, a queue or preemptions are part; returns when it ends.

        Whoever waits after a step that admitted nobody waits for a decode to end, since nothing else changes: a leap until then.
        (But for one who waits for blocks and quotes an answer that is being written.)
        """
        scheduler, steps, cost = self.scheduler, self.steps, self.cost
        self.first = len(steps.end_ns)
        step = scheduler.step
        mixed = scheduler.decide(start)
        chunks = steps.rows.chunks
        for request in scheduler.wasting:
            chunks.frombytes(pack_chunk(step, request.index, 1, request.base + step, True))
        steps.kv_blocks.append(scheduler.usable - scheduler.free)
        prompts = tokens = pairs = 0
        goes_on = False
        if mixed is not None:
            end = start + cost.step_ns(mixed)
            prefill, sequences, context, longest, sampled, _ = mixed
            for query, before in prefill:
                prompts += 1
                tokens += query
                pairs += query * before + query * (query + 1) // 2
            for request, query, before in scheduler.rows:
                samples = request is not scheduler.partial
                chunks.frombytes(pack_chunk(step, request.index, query, before, samples))
                if samples and request.first_token_ns < 0:
                    request.first_token_ns = end
        else:
            sequences = sampled = scheduler.sequences
            context, longest = scheduler.context, scheduler.longest
            end = start + cost.decode_ns(sequences, context, longest) if sequences else start
            if not scheduler.preempted:
                if not sequences and not scheduler.ending:
                    raise RuntimeError(f"the scheduler has work but schedules nothing (step {step})")
                next_decided = start if self.ahead else end
                quiet = self.leaps and next_decided < bound and not scheduler.ending and scheduler.finishes[0][0] > step
                goes_on = quiet and not scheduler.first_may_hit_more
        # Nobody is admitted in a step that preempts, so the next may differ. (Without rows it only made room.)
        for request in scheduler.preempted:
            steps.preempted += step, request.index
        steps.end_ns.append(end)
        decodes = sequences, context, longest
        running, waiting = len(scheduler.running), len(scheduler.waiting)
        steps.leaps.frombytes(
            pack_leap(step, 1, start, start, prompts, tokens, pairs, *decodes, sampled, running, waiting, -1)
        )
        return self._leap(end, bound, decided=1) if goes_on else end

    def abort(self, request: Request, now: int, status: Status, cause: Cause) -> None:
        """Its client has left, or it is sent away: its row is closed with the tokens that are out, and the engine lets it go when
        it decides its next step. The caller has called `advance(now)`, and `cut(now)` if leaps may go on beyond."""
        self._close_as_of(request, now, now, status, now, cause)
        self.outstanding -= 1
        self.leaving[request] = None

    def load(self, now: int) -> Load:
        """What there is to do; the caller has called `advance(now)`."""
        scheduler = self.scheduler
        in_use = scheduler.usable - scheduler.free
        if self.owed:  # a leap is in flight, whose later steps may never run
            ends, blocks = self.steps.end_ns, self.steps.kv_blocks
            in_use = blocks[min(bisect_left(ends, now, max(self.first - self.ahead, 0)) + self.ahead, len(blocks) - 1)]
        waiting = staying(scheduler.waiting, self.leaving)
        return Load(waiting, len(scheduler.running), scheduler.max_num_seqs, in_use / scheduler.usable)

    def close_open(self, now: int) -> None:
        """Writes the rows of requests that the end of the run finds unfinished, and takes the step that runs then, and what has
        been decided after it, back."""
        scheduler, steps = self.scheduler, self.steps
        if self.ends is not None:
            self.cut(now)
            ended = scheduler.step
            while steps.end_ns and steps.end_ns[-1] >= now:
                steps.drop_steps(1)
                ended -= 1
            while steps.preempted and steps.preempted[-2] >= ended:
                del steps.preempted[-2:]
        while steps.visible and steps.visible[-2] >= scheduler.step:  # no step was decided with it
            del steps.visible[-2:]
        for request in (*scheduler.running, *scheduler.waiting):
            if request not in self.leaving:
                self._close_as_of(request, now, now - 1, Status.IN_FLIGHT, -1, Cause.NONE)

    def _close_as_of(
        self, request: Request, started_before: int, out_by: int, status: Status, finish: int, cause: Cause
    ) -> None:
        """Writes the row of a request that goes on in the scheduler, without what has been decided but has not happened yet."""
        known = request.num_outputs, request.first_scheduled_ns, request.first_token_ns
        request.num_outputs = self.scheduler.outputs_of(request, self.ends is not None)
        if request.first_scheduled_ns >= started_before:
            request.first_scheduled_ns = -1
        if request.first_token_ns > out_by:
            request.first_token_ns = -1
        self.requests.close(request, status, finish, self.number, request.submission, cause)
        request.num_outputs, request.first_scheduled_ns, request.first_token_ns = known


def _prompt_ns(cost: CostModel) -> Callable[[int, int, int, int], int]:
    """What a step of one whole prompt costs, by `(query, decodes, their context, the longest of their contexts)`."""
    if isinstance(cost, (TabledCost, OperatorCost)):
        return cost.prompt_ns
    return lambda query, sequences, context, longest: cost.step_ns(
        StepShape(((query, 0),), sequences, context, longest, sequences + 1)
    )
