"""The scheduler for simulation at speed: the same decisions as `serving.scheduler`, at a cost that grows with decisions, not
with tokens.

A decode that runs along undisturbed is never touched: it is `base`, so that `base + step` tokens of it are computed before
step `step`. Which decodes need a block at a step follows from `base mod block_size`, who ends when from a heap, and the sums
that a step's cost needs from counters. That a quiet engine does the same for n steps is then one look: a leap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.config import EngineConfig
from serving.extents import CountPool, ExtentPool, Match
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.request import Request, Status
from serving.scheduler import PrefixStats

_LOOP = 48  # steps up to which a plain loop beats numpy

Row = tuple[Request, int, int, bool]
"""A prompt's part of a step: request, tokens, context before, whether a token comes out."""


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
        self.partial: Request | None = None
        self.decodes = 0
        self.base_sum = 0
        self.base_max: int | None = 0  # None: to be found again
        self.due: list[dict[Request, None]] = [{} for _ in range(config.block_size)]  # decodes by base mod block_size
        self.finishes: list[tuple[int, int, Request]] = []  # (last step, admission, request); stale ones are skipped
        self.admissions = 0
        # of the step last decided
        self.rows: list[Row] = []
        self.preempted: list[Request] = []
        self.prefill: list[tuple[int, int]] = []  # (query, context) of its prompts
        self.admitted: list[tuple[Request, int, bool]] = []
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
    def shape(self) -> StepShape:
        """Of the step decided last."""
        n = self.sequences
        return self.mixed or StepShape((), n, self.context, self.longest, n)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        request.status = Status.WAITING
        request.stop_after = request.stops_after(self.config.max_model_len)
        if self.cache is not None:
            self.cache.open(request)
        self.waiting.append(request)

    def abort(self, request: Request) -> bool:
        """Ends a request wherever it is and frees its blocks; False if it had ended or never came."""
        if request.status is Status.RUNNING and request in self.running:
            del self.running[request]
            self._take_everything(request)
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
        decoding: list[Request] = []
        self.decide(now_ns, decoding)
        step = self.step - 1
        rows = [Scheduled(request, 1, request.base + step, samples=True) for request in decoding]
        rows += [Scheduled(*row) for row in self.rows]
        return StepPlan(
            step=step,
            scheduled=rows,
            shape=self.shape,
            admitted=[Admission(*each) for each in self.admitted],
            preempted=list(self.preempted),
            running=len(self.running),
            waiting=len(self.waiting),
            free_blocks=self.pool.free,
        )

    def decide(self, now_ns: int, decoding: list[Request] | None = None) -> StepShape | None:
        """Decides the next step. Its decodes are `sequences`, `context` and `longest`; `rows` are its prompts.

        Args:
            decoding: filled with the decodes of this step if given.

        Returns:
            the shape of a step with prompts; None if it has decodes only (they alone are then the shape).
        """
        step = self.step
        if self.mixed is not None:
            self.rows, self.prefill, self.admitted, self.mixed = [], [], [], None
        if self.preempted:
            self.preempted = []
        due = len(self.due[-step % self.block_size])
        if due:
            if due <= self.pool.free:
                self.pool.take(due)
            else:
                self._take_or_preempt(self.due[-step % self.block_size])
        if decoding is not None:
            decoding.extend(request for request in self.running if request is not self.partial)
        sequences = self.sequences = self.decodes
        self.context = self.base_sum + sequences * step
        base_max = self.base_max
        self.longest = (self._find_base_max() if base_max is None else base_max) + step if sequences else 0
        self.step = step + 1
        self.in_flight = True
        if self.cache is not None:
            self.cache.step = step + 1
        if self.waiting or self.partial is not None:
            budget = self.max_num_batched_tokens - sequences
            if self.partial is not None:
                budget -= self._continue_partial(self.partial, budget)
            if self.waiting and budget > 0 and not self.preempted:
                self._admit(budget, now_ns)
            if self.rows:
                # Rows that sample have just joined the decodes, for the next step on.
                self.mixed = StepShape(tuple(self.prefill), self.sequences, self.context, self.longest, self.decodes)
        return self.mixed

    def update(self, plan: object = None) -> list[Request]:
        """The step decided last has run; returns those whose answer it completed."""
        self.in_flight = False
        finished: list[Request] = []
        finishes, step = self.finishes, self.step
        while finishes and finishes[0][0] < step:
            _, admission, request = heappop(finishes)
            if request.scheduled_order == admission and request.status is Status.RUNNING:
                del self.running[request]
                self._take_decode(request)
                if self.cache is not None:
                    self.cache.close(request)
                request.num_outputs = request.stop_after
                request.status = Status.FINISHED
                finished.append(request)
        return finished

    # -- leaps ---------------------------------------------------------------------------------------------------------

    def leap(self, cost: DecodeCost, end: int, bound: int, ends: list[int], blocks: list[int]) -> int:
        """Appends the ends, and the blocks in use, of the steps that follow the one decided last and are like it.

        The batch stays as it is until the step in which its first request ends, if blocks last and nobody arrives; whoever
        waits now waits for that, since nothing grows but the memory in use. Nothing is counted before `commit`.

        Args:
            cost: durations of decode steps.
            end: when the step decided last ends.
            bound: no step starts at or after it.
            ends, blocks: one value a step, the step decided last included; extended.

        Returns:
            the end of the last step.
        """
        finishes, step, sequences = self.finishes, self.step, self.sequences
        while finishes[0][2].scheduled_order != finishes[0][1] or finishes[0][2].status is not Status.RUNNING:
            heappop(finishes)
        last = finishes[0][0]
        fixed, per_context = cost.decode_line(sequences)
        context = self.context
        if last - step > _LOOP:
            likely = min(last - step + 1, 2 + int((bound - end) / (fixed + per_context * context)))
            if likely > _LOOP:
                return self._long_leap(cost, end, bound, ends, blocks, likely)
        due, size = self.due, self.block_size
        used = blocks[0]
        usable = used + self.pool.free
        for ahead in range(step, last + 1):
            used += len(due[-ahead % size])
            if used > usable:
                break
            context += sequences
            end += int(fixed + per_context * context + 0.5)
            ends.append(end)
            blocks.append(used)
            if end >= bound:
                break
        return end

    def _long_leap(self, cost: DecodeCost, end: int, bound: int, ends: list[int], blocks: list[int], steps: int) -> int:
        """`leap` for many steps, by arrays."""
        due = np.array([len(group) for group in self.due])
        used = blocks[0] + np.cumsum(due[-np.arange(self.step, self.step + steps) % self.block_size])
        n = int(np.searchsorted(used, blocks[0] + self.pool.free, side="right"))
        sequences = self.sequences
        shape = StepShape((), sequences, self.context + sequences, self.longest + 1, sequences)
        later = end + np.cumsum(cost.leap_ns(shape, n))
        n = min(n, int(np.searchsorted(later, bound)) + 1)
        ends.extend(later[:n].tolist())
        blocks.extend(used[:n].tolist())
        return ends[-1]

    def commit(self, steps: int, blocks: int) -> None:
        """Counts `steps` more steps like the one decided last, which take `blocks` blocks."""
        if blocks:
            self.pool.take(blocks)
        self.step += steps
        if self.cache is not None:
            self.cache.step = self.step

    def _find_base_max(self) -> int:
        self.base_max = found = max((r.base for r in self.running if r is not self.partial), default=0)
        return found

    def outputs_of(self, request: Request) -> int:
        """Answer tokens that a request has now."""
        if request.status is Status.RUNNING and request is not self.partial:
            return request.base + self.step + 1 - request.prompt_tokens - self.in_flight
        return request.num_outputs

    # -- the parts of a decision ---------------------------------------------------------------------------------------

    def _take_or_preempt(self, due: Iterable[Request]) -> None:
        """Blocks for the decodes that need one, in admission order; the last admitted pays when none is left."""
        for request in list(due):
            if request.status is not Status.RUNNING:
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
        size = self.config.block_size
        new = -(-(computed + n) // size) - -(-computed // size)
        if new > self.pool.free:  # it is the last admitted itself
            self._preempt(request)
            return 0
        self.pool.take(new)
        self.partial = None
        self._schedule(request, n)
        return n

    def _admit(self, budget: int, now_ns: int) -> None:
        config, pool, cache = self.config, self.pool, self.cache
        size = self.block_size
        waiting, running = self.waiting, self.running
        match: Match = []
        hit = unowned = 0
        while waiting and budget > 0 and len(running) < config.max_num_seqs:
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
            room_for = min(tokens, config.max_model_len) if config.scheduler_reserve_full_isl else hit + n
            needed = (room_for - hit + size - 1) // size + unowned
            if needed > pool.free or (config.watermark and running and needed + config.watermark_blocks > pool.free):
                return
            waiting.popleft()
            resumed = request.status is Status.PREEMPTED
            if cache is not None:
                cache.claim(request, match)
                self.prefix.count(tokens, hit, resumed)
            pool.take((n + size - 1) // size)
            if not resumed:
                request.cached_tokens = hit
                request.first_scheduled_ns = now_ns
            request.status = Status.RUNNING
            request.computed = hit
            self.admissions += 1
            request.scheduled_order = self.admissions
            running[request] = None
            self.admitted.append((request, hit, resumed))
            self._schedule(request, n)
            budget -= n

    def _schedule(self, request: Request, n: int) -> None:
        """Notes a row. A prompt that is not complete by it becomes the partial one; one that is becomes a decode of the next
        step, unless this one ends it."""
        context = request.computed
        end = request.computed = context + n
        outputs = request.num_outputs
        if self.cache is not None:
            self.cache.publish(request, end)
        if end < request.prompt_tokens + outputs:
            self.partial = request
            self.prefill.append((n, context))
            self.rows.append((request, n, context, False))
            return
        self.rows.append((request, n, context, True))
        if n == 1 and outputs:  # all but its newest token was found in the cache
            self.sequences += 1
            self.context += context
            self.longest = max(self.longest, context)
        else:
            self.prefill.append((n, context))
        step = self.step
        base = request.base = end - step
        self.decodes += 1
        self.base_sum += base
        if self.base_max is not None and (self.decodes == 1 or base > self.base_max):
            self.base_max = base
        self.due[base % self.block_size][request] = None
        heappush(self.finishes, (step - 2 + request.stop_after - outputs, request.scheduled_order, request))
        if self.cache is not None:
            self.cache.writers[request.output_key] = request

    def _take_decode(self, request: Request) -> None:
        """A decode leaves the running set: its blocks go back, the sums forget it."""
        base = request.base
        self.decodes -= 1
        self.base_sum -= base
        if base == self.base_max:
            self.base_max = None
        del self.due[base % self.block_size][request]
        if self.cache is not None:
            del self.cache.writers[request.output_key]
        self.pool.release(request, base + self.step)

    def _take_everything(self, request: Request) -> None:
        if request is self.partial:
            self.partial = None
            self.pool.release(request, request.computed)
        else:
            self._take_decode(request)

    def _preempt(self, victim: Request) -> None:
        del self.running[victim]
        if victim is not self.partial:
            victim.num_outputs = victim.base + self.step + 1 - victim.prompt_tokens
        self._take_everything(victim)
        victim.computed = 0
        victim.status = Status.PREEMPTED
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        self.preempted.append(victim)
