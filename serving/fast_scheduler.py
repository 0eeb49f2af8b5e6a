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

from serving.config import EngineConfig
from serving.extents import CountPool, ExtentPool, Match
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.request import Request, Status
from serving.scheduler import PrefixStats

Row = tuple[Request, int, int, bool]
"""A prompt's part of a step: request, tokens, context before, whether a token comes out."""


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
        self.admitted: list[Admission] = []
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
            shape=self.mixed or StepShape((), self.sequences, self.context, self.longest, self.sequences),
            admitted=self.admitted,
            preempted=self.preempted,
            running=len(self.running),
            waiting=len(self.waiting),
            free_blocks=self.pool.free,
        )

    def decide(self, now_ns: int, decoding: list[Request] | None = None) -> None:
        """Decides the next step. Its decodes are `sequences`, `context` and `longest`; `rows` are its prompts, and `mixed` is
        its shape if it has any.

        Args:
            decoding: filled with the decodes of this step if given.
        """
        step = self.step
        if self.rows:
            self.rows, self.admitted, self.mixed = [], [], None
        if self.preempted:
            self.preempted = []
        due = self.due[-step % self.block_size]
        if due:
            if len(due) <= self.pool.free:
                self.pool.take(len(due))
            else:
                self._take_or_preempt(due)
        if decoding is not None:
            decoding.extend(request for request in self.running if request is not self.partial)
        if self.cache is not None:
            self.cache.step = step + 1
        sequences = self.sequences = self.decodes
        self.context = self.base_sum + sequences * step
        self.longest = self.longest_base() + step if sequences else 0
        if self.partial is not None or self.waiting:
            budget = self.max_num_batched_tokens - sequences
            if self.partial is not None:
                budget -= self._continue_partial(self.partial, budget)
            if self.waiting and budget > 0 and not self.preempted:
                self._admit(budget, now_ns)
            self.step = step + 1
            if self.rows:
                self._shape_rows()
                for request, _, _, samples in self.rows:
                    if samples:
                        self._start_decoding(request)
        self.step = step + 1
        self.in_flight = True

    def update(self, plan: object = None) -> list[Request]:
        """The step decided last has run; returns those whose answer it completed."""
        self.in_flight = False
        finished: list[Request] = []
        finishes, last = self.finishes, self.step - 1
        while finishes and finishes[0][0] <= last:
            _, admission, request = heappop(finishes)
            if request.scheduled_order == admission and request.status is Status.RUNNING:
                del self.running[request]
                self._take_everything(request)
                if self.cache is not None:
                    self.cache.close(request)
                request.num_outputs = request.stop_after
                request.status = Status.FINISHED
                finished.append(request)
        return finished

    # -- leaps ---------------------------------------------------------------------------------------------------------

    def last_quiet_step(self) -> int:
        """The last step up to which the batch decided last stays as it is, if blocks last and nobody arrives: the one in
        which its first request ends. Whoever waits now waits for that: nothing grows but the memory in use."""
        finishes = self.finishes
        while True:
            last, admission, request = finishes[0]
            if request.scheduled_order == admission and request.status is Status.RUNNING:
                return last
            heappop(finishes)

    def leap(self, steps: int, blocks: int) -> None:
        """Counts `steps` more steps like the one decided last, which take `blocks` blocks."""
        self.pool.take(blocks)
        self.step += steps
        if self.cache is not None:
            self.cache.step = self.step

    def longest_base(self) -> int:
        if self.base_max is None:
            self.base_max = max((r.base for r in self.running if r is not self.partial), default=0)
        return self.base_max

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
        size = config.block_size
        waiting, running = self.waiting, self.running
        match: Match = []
        while waiting and budget > 0 and len(running) < config.max_num_seqs:
            request = waiting[0]
            tokens = request.num_tokens
            hit = unowned = 0
            if cache is not None:
                match = cache.find_prefix(request, tokens)
                if match:
                    hit = match[-1][2] * size
                    unowned = cache.unowned(match)
            n = tokens - hit
            if n > budget:
                if not config.enable_chunked_prefill:
                    return
                n = budget
            room_for = min(tokens, config.max_model_len) if config.scheduler_reserve_full_isl else hit + n
            kept_free = config.watermark_blocks if running else 0
            if (room_for - hit + size - 1) // size + unowned + kept_free > pool.free:
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
            request.scheduled_order = self.admissions
            self.admissions += 1
            running[request] = None
            self.admitted.append(Admission(request, hit, resumed))
            self._schedule(request, n)
            budget -= n

    def _schedule(self, request: Request, n: int) -> None:
        """Notes a row. A prompt that is not complete by it becomes the partial one."""
        context = request.computed
        end = request.computed = context + n
        if self.cache is not None:
            self.cache.publish(request, end)
        samples = end == request.num_tokens
        if not samples:
            self.partial = request
        self.rows.append((request, n, context, samples))

    def _shape_rows(self) -> None:
        sampled = self.sequences
        prefill = []
        for request, n, before, samples in self.rows:
            if n == 1 and samples and request.num_outputs:  # all but its newest token was found in the cache
                self.sequences += 1
                self.context += before
                self.longest = max(self.longest, before)
            else:
                prefill.append((n, before))
            if samples:
                sampled += 1
        self.mixed = StepShape(tuple(prefill), self.sequences, self.context, self.longest, sampled)

    def _start_decoding(self, request: Request) -> None:
        """The step just decided samples from `request` and, unless that ends it, the next one decodes it."""
        step = self.step
        base = request.base = request.computed - step
        self.decodes += 1
        self.base_sum += base
        if self.base_max is not None and (self.decodes == 1 or base > self.base_max):
            self.base_max = base
        self.due[base % len(self.due)][request] = None
        last = step - 2 + request.stop_after - request.num_outputs
        heappush(self.finishes, (last, request.scheduled_order, request))
        if self.cache is not None:
            self.cache.writers[request.output_key] = request

    def _take_everything(self, request: Request) -> None:
        """A request leaves the running set: its blocks go back, the sums forget it."""
        if request is self.partial:
            self.partial = None
            computed = request.computed
        else:
            computed = request.base + self.step
            self.decodes -= 1
            self.base_sum -= request.base
            if request.base == self.base_max:
                self.base_max = None
            del self.due[request.base % len(self.due)][request]
            if self.cache is not None:
                del self.cache.writers[request.output_key]
        self.pool.release(request, computed)

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
