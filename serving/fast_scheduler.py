"""The scheduler for simulation at speed: the same decisions as `serving.scheduler`, at a cost that grows with decisions, not
with tokens.

A decode that runs along undisturbed is never touched: it is `base`, so that `base + step` tokens of it are computed before
step `step`. How many decodes need a block at a step follows from `-base mod block_size`, who ends when from a heap, and the
sums that a step's cost needs from counters. That a quiet engine does the same for n steps is then one look: a leap.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.config import EngineConfig
from serving.extents import CountPool, ExtentPool, Match
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.request import Request, Status
from serving.scheduler import PrefixStats

_LOOP = 48  # steps up to which a plain loop beats numpy

# Looking a member up in its enum takes as long as ten instructions.
_WAITING, _RUNNING, _PREEMPTED, _FINISHED = Status.WAITING, Status.RUNNING, Status.PREEMPTED, Status.FINISHED

Row = tuple[Request, int, int]
"""A prompt's part of a step: request, tokens, context before. A token comes out unless the prompt stays partial."""


class DecodeCost(Protocol):
    """What a leap needs of a cost model; see `sim.cost.CostModel`."""

    def decode_line(self, sequences: int) -> tuple[float, float]: ...

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]: ...


class FastScheduler:
    """Decides steps for the settings that `supports` accepts: first come, first served, mixed batches, and one partly computed
    prompt at most, since a chunk is only ever cut by the end of the budget."""

    def __init__(self, config: EngineConfig) -> None:
        if not self.supports(config):
            raise ValueError("these settings need serving.scheduler.Scheduler")
        self.config = config
        self.block_size = config.block_size
        self.usable = config.usable_blocks
        self.max_model_len = config.max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.pool: CountPool | ExtentPool
        self.cache: ExtentPool | None = None
        if config.enable_prefix_caching:
            self.pool = self.cache = ExtentPool(config.usable_blocks, config.block_size)
        else:
            self.pool = CountPool(config.usable_blocks, config.block_size)
        self.running: dict[Request, None] = {}  # in admission order
        self.waiting: deque[Request] = deque()
        self.prefix = PrefixStats()
        self.step = 0
        self.in_flight = False  # between schedule() and update()
        self.owed = 0  # blocks that the leap in flight takes once it has run: it may be cut before
        self.partial: Request | None = None
        self.decodes = 0
        self.base_sum = 0
        self.base_max: int | None = 0  # None: to be found again
        self.due = [0] * config.block_size  # decodes by the steps, modulo block_size, that need a block for them
        self.finishes: list[tuple[int, int, Request]] = []  # heap of (last step, admission, decode)
        self.admissions = 0
        # of the step last decided
        self.rows: list[Row] = []
        self.prefill: list[tuple[int, int]] = []  # (query, context) of its prompts
        self.preempted: list[Request] = []
        self.mixed: StepShape | None = None  # its shape if it has rows
        self.sequences = self.context = self.longest = 0  # its decodes

    @staticmethod
    def supports(config: EngineConfig) -> bool:
        return (
            config.policy == "fcfs"
            and config.batching == "chunked"
            and config.long_prefill_token_threshold == 0
            and config.max_num_seqs <= config.max_num_batched_tokens
        )

    @property
    def free_blocks(self) -> int:
        return self.pool.free

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        request.status = _WAITING
        request.stop_after = request.stops_after(self.max_model_len)
        if self.cache is not None:
            self.cache.open(request)
        self.waiting.append(request)

    def abort(self, request: Request) -> bool:
        """Ends a request wherever it is and frees its blocks; False if it had ended or never came."""
        if request in self.running:
            self._remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        else:
            return False
        if self.cache is not None:
            self.cache.close(request)
        request.status = Status.ABORTED
        return True

    def schedule(self, now_ns: int = 0) -> StepPlan:
        """Decides the next step and spells it out, as `Scheduler.schedule` does."""
        continued = self.partial
        shape = self.decide(now_ns)
        step = self.step - 1
        prompts = {request for request, _, _ in self.rows}
        rows = [Scheduled(r, 1, r.base + step, samples=True) for r in self.running if r not in prompts]
        rows += [Scheduled(*row, samples=row[0] is not self.partial) for row in self.rows]
        return StepPlan(
            step=step,
            scheduled=rows,
            shape=shape or StepShape((), self.sequences, self.context, self.longest, self.sequences),
            admitted=[Admission(r, hit, r.preemptions > 0) for r, _, hit in self.rows if r is not continued],
            preempted=list(self.preempted),
            running=len(self.running),
            waiting=len(self.waiting),
            free_blocks=self.pool.free,
        )

    def decide(self, now_ns: int) -> StepShape | None:
        """Decides the next step. Its decodes are `sequences`, `context` and `longest`; `rows` are its prompts.

        Returns:
            the shape of a step with prompts; None if it has decodes only (they alone are then the shape).
        """
        step = self.step
        self.mixed = None
        if self.rows:
            self.rows, self.prefill = [], []
        if self.preempted:
            self.preempted = []
        due = self.due[step % self.block_size]
        if due:
            if due <= self.pool.free:
                self.pool.take(due)
            else:
                self._take_or_preempt(step)
        self._sum_up(step)
        self.step = step + 1
        self.in_flight = True
        if self.waiting or self.partial is not None:
            if self.cache is not None:
                self.cache.step = step + 1
            budget = self.max_num_batched_tokens - self.sequences
            if self.partial is not None:
                budget -= self._continue_partial(self.partial, budget)
            if self.waiting and budget > 0 and not self.preempted:
                self._admit(budget, now_ns)
            if self.rows:
                # Rows that sample have just joined the decodes, for the next step on.
                self.mixed = StepShape(tuple(self.prefill), self.sequences, self.context, self.longest, self.decodes)
        return self.mixed

    def update(self, plan: object = None) -> list[Request]:
        """The step (or leap) decided last has run; returns those whose answer it completed."""
        self.in_flight = False
        if self.owed:
            self.pool.take(self.owed)
            self.owed = 0
        finished: list[Request] = []
        finishes, step = self.finishes, self.step
        while finishes and finishes[0][0] < step:
            request = heappop(finishes)[2]
            del self.running[request]
            self._forget_decode(request)
            if self.cache is not None:
                self.cache.close(request)
            request.num_outputs = request.stop_after
            request.status = _FINISHED
            finished.append(request)
        return finished

    # -- leaps ---------------------------------------------------------------------------------------------------------

    def leap(self, cost: DecodeCost, end: int, bound: int, ends: list[int], blocks: list[int]) -> int:
        """Decides the steps to come as long as each is like the one before: the same decodes, one token further.

        That is until the first of them ends, blocks run out, or somebody arrives. Whoever waits already waits for one of
        these, since nothing but the memory in use changes.

        Args:
            cost: durations of decode steps.
            end: when the step before ends.
            bound: no step starts at or after it.
            ends, blocks: extended by every step's end and the blocks in use while it runs.

        Returns:
            the number of steps.
        """
        step = self.step
        self._sum_up(step)
        sequences, context = self.sequences, self.context
        last = self.finishes[0][0]
        usable = self.usable
        in_use = used = usable - self.pool.free
        fixed, per_context = cost.decode_line(sequences)
        if last - step > _LOOP:
            likely = min(last - step + 1, 2 + int((bound - end) / (fixed + per_context * context)))
            if likely > _LOOP:
                return self._long_leap(cost, end, bound, ends, blocks, likely)
        due, size = self.due, self.block_size
        before = len(ends)
        for at in range(step, last + 1):
            used += due[at % size]
            if used > usable:
                used -= due[at % size]
                break
            end += int(fixed + per_context * context + 0.5)
            context += sequences
            ends.append(end)
            blocks.append(used)
            if end >= bound:
                break
        n = len(ends) - before
        self.step = step + n
        self.owed = used - in_use
        self.in_flight = True
        return n

    def _long_leap(self, cost: DecodeCost, end: int, bound: int, ends: list[int], blocks: list[int], steps: int) -> int:
        """`leap` for many steps, by arrays."""
        in_use = self.usable - self.pool.free
        used = in_use + np.cumsum(np.array(self.due)[np.arange(self.step, self.step + steps) % self.block_size])
        n = int(np.searchsorted(used, self.usable, side="right"))
        shape = StepShape((), self.sequences, self.context, self.longest, self.sequences)
        later = end + np.cumsum(cost.leap_ns(shape, n))
        n = min(n, int(np.searchsorted(later, bound)) + 1)
        ends.extend(later[:n].tolist())
        blocks.extend(used[:n].tolist())
        self.step += n
        self.owed = int(used[n - 1]) - in_use if n else 0
        self.in_flight = True
        return n

    def cut(self, dropped: int, in_use: int) -> None:
        """The leap in flight ends `dropped` steps earlier, with `in_use` blocks."""
        self.step -= dropped
        self.owed = in_use - (self.usable - self.pool.free)

    def outputs_of(self, request: Request) -> int:
        """Answer tokens that a request has now."""
        if request in self.running and request is not self.partial:
            return request.base + self.step + 1 - request.prompt_tokens - self.in_flight
        return request.num_outputs

    # -- the parts of a decision ---------------------------------------------------------------------------------------

    def _sum_up(self, step: int) -> None:
        """Notes what the decodes of a step add up to."""
        sequences = self.sequences = self.decodes
        self.context = self.base_sum + sequences * step
        base_max = self.base_max
        if base_max is None:
            base_max = self.base_max = max((r.base for r in self.running if r is not self.partial), default=0)
        self.longest = base_max + step if sequences else 0

    def _take_or_preempt(self, step: int) -> None:
        """Blocks for the decodes that need one, in admission order; the last admitted pays when none is left."""
        size = self.block_size
        for request in [r for r in self.running if r is not self.partial and (r.base + step) % size == 0]:
            if request not in self.running:
                continue
            while self.pool.free < 1:
                victim = next(reversed(self.running))
                self._preempt(victim)
                if victim is request:
                    return
            self.pool.take(1)

    def _continue_partial(self, request: Request, budget: int) -> int:
        """One more chunk of the prompt that is partly computed; returns its tokens."""
        computed = request.computed
        n = min(request.num_tokens - computed, budget)
        size = self.block_size
        new = -(-(computed + n) // size) - -(-computed // size)
        if new > self.pool.free:  # it is the last admitted itself
            self._preempt(request)
            return 0
        self.pool.take(new)
        self.partial = None
        self._schedule(request, n, computed)
        return n

    def _admit(self, budget: int, now_ns: int) -> None:
        config, pool, cache = self.config, self.pool, self.cache
        size = self.block_size
        waiting, running = self.waiting, self.running
        match: Match = []
        hit = unowned = 0
        while waiting and budget > 0 and len(running) < self.max_num_seqs:
            request = waiting[0]
            tokens = request.prompt_tokens + request.num_outputs
            if cache is not None:
                match = cache.find_prefix(request, tokens)
                hit, unowned = (match[-1][2] * size, cache.unowned(match)) if match else (0, 0)
            n = tokens - hit
            if n > budget:
                if not config.enable_chunked_prefill:
                    return
                n = budget
            room_for = min(tokens, self.max_model_len) if config.scheduler_reserve_full_isl else hit + n
            needed = (room_for - hit + size - 1) // size + unowned
            if needed > pool.free or (config.watermark and running and needed + config.watermark_blocks > pool.free):
                return
            waiting.popleft()
            resumed = request.preemptions > 0
            if cache is not None:
                cache.claim(request, match)
                self.prefix.count(tokens, hit, resumed)
            pool.take((n + size - 1) // size)
            if not resumed:
                request.cached_tokens = hit
                request.first_scheduled_ns = now_ns
            request.status = _RUNNING
            self.admissions += 1
            request.scheduled_order = self.admissions
            running[request] = None
            self._schedule(request, n, hit)
            budget -= n

    def _schedule(self, request: Request, n: int, context: int) -> None:
        """Notes a row. A prompt that is not complete by it becomes the partial one; one that is becomes a decode of the next
        step, unless this one ends it."""
        end = context + n
        outputs = request.num_outputs
        cache = self.cache
        if cache is not None:
            cache.publish(request, end)
        self.rows.append((request, n, context))
        if end < request.prompt_tokens + outputs:
            self.partial = request
            request.computed = end
            self.prefill.append((n, context))
            return
        if n == 1 and outputs:  # all but its newest token was found in the cache
            self.sequences += 1
            self.context += context
            self.longest = max(self.longest, context)
        else:
            self.prefill.append((n, context))
        # This step has been counted already.
        step = self.step
        base = request.base = end - step
        self.decodes += 1
        self.base_sum += base
        if self.base_max is not None and (self.decodes == 1 or base > self.base_max):
            self.base_max = base
        self.due[-base % self.block_size] += 1
        heappush(self.finishes, (_last_step(request), request.scheduled_order, request))
        if cache is not None:
            cache.writers[request.output_key] = request

    def _forget_decode(self, request: Request) -> None:
        """A decode leaves the running set: its blocks go back, the sums forget it."""
        base = request.base
        self.decodes -= 1
        self.base_sum -= base
        if base == self.base_max:
            self.base_max = None
        self.due[-base % self.block_size] -= 1
        if self.cache is not None:
            del self.cache.writers[request.output_key]
        self.pool.release(request, base + self.step)

    def _remove(self, request: Request) -> None:
        """A request leaves the running set before its end."""
        del self.running[request]
        if request is self.partial:
            self.partial = None
            self.pool.release(request, request.computed)
        else:
            self.finishes.remove((_last_step(request), request.scheduled_order, request))
            heapify(self.finishes)
            self._forget_decode(request)

    def _preempt(self, victim: Request) -> None:
        if victim is not self.partial:
            victim.num_outputs = victim.base + self.step + 1 - victim.prompt_tokens
        self._remove(victim)
        victim.computed = 0
        victim.status = _PREEMPTED
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        self.preempted.append(victim)


def _last_step(decode: Request) -> int:
    """The step that computes the last answer token but one, and by that yields the last."""
    return decode.prompt_tokens + decode.stop_after - 2 - decode.base
