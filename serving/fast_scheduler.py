"""The scheduler for simulation at speed: the same decisions as `serving.scheduler`, at a cost that grows with decisions, not
with tokens.

A decode that runs along undisturbed is never touched: it is `base`, so that `base + step` tokens of it are computed before
step `step`. How many decodes need a block at a step follows from `-base mod block_size`, who ends when from a heap, and the
sums that a step's cost needs from counters. That a quiet engine does the same for n steps is then one look: a leap.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from serving.config import EngineConfig
from serving.extents import Match, PrefixExtents
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.prefix_stats import PrefixStats
from serving.request import Request, Status

# Looking a member up in its enum takes as long as ten instructions.
_RUNNING, _PREEMPTED, _FINISHED = Status.RUNNING, Status.PREEMPTED, Status.FINISHED

Row = tuple[Request, int, int]
"""A prompt's part of a step: request, tokens, context before. A token comes out unless the prompt stays partial."""


class FastScheduler:
    """Decides steps for the settings that `supports` accepts: first come, first served, mixed batches, and one partly computed
    prompt at most, since a chunk is only ever cut by the end of the budget; one token of an answer a step. This class decides
    with every token of the steps before known; `serving.fast_async_scheduler` decides one step ahead.

    asynchronous: a step is decided while the one before it runs.
    """

    asynchronous = False

    def __init__(self, config: EngineConfig) -> None:
        if not self.supports(config) or config.async_scheduling != self.asynchronous:
            raise ValueError("these settings need another scheduler")
        self.config = config
        self.block_size = config.block_size
        self.usable = self.free = config.usable_blocks
        self.max_model_len = config.max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.watermark_blocks = config.watermark_blocks if config.watermark else 0
        self.cache = PrefixExtents(self.usable, self.block_size) if config.enable_prefix_caching else None
        self.running: dict[Request, None] = {}  # in admission order
        self.waiting: deque[Request] = deque()
        self.prefix = PrefixStats()
        self.step = 0
        self.partial: Request | None = None
        self.decodes = 0
        self.base_sum = 0
        self.base_max: int | None = 0  # None: to be found again
        self.due = [0] * config.block_size  # decodes by the steps, modulo block_size, that need a block for them
        self.finishes: list[tuple[int, int, Request]] = []  # heap of (last step, admission, decode)
        # None where scheduling is synchronous:
        self.ending: list[Request] = []  # decodes whose last token is in flight
        self.wasting: list[Request] = []  # those of them who compute in this step too, since nobody could foresee it
        self.admissions = 0
        # of the step last decided
        self.rows: list[Row] = []
        self.prefill: list[tuple[int, int]] = []  # (query, context) of its prompts
        self.preempted: list[Request] = []
        self.sequences = self.context = self.longest = 0  # its decodes

    @staticmethod
    def supports(config: EngineConfig) -> bool:
        """Whether this class, or its asynchronous kind, takes these settings."""
        return (
            config.policy == "fcfs"
            and config.batching == "chunked"
            and config.long_prefill_token_threshold == 0
            and config.max_num_seqs <= config.max_num_batched_tokens
            and config.speculation == "none"
            and config.admits_what_fits
            and config.plain_memory
        )

    @property
    def free_blocks(self) -> int:
        return self.free

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
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
        rows = [Scheduled(r, 1, r.base + step, samples=True) for r in self.decoding() if r not in prompts]
        rows += [Scheduled(*row, samples=row[0] is not self.partial) for row in self.rows]
        return StepPlan(
            step=step,
            scheduled=rows,
            shape=shape or StepShape((), self.sequences, self.context, self.longest, self.sequences),
            admitted=[Admission(r, hit, r.preemptions > 0) for r, _, hit in self.rows if r is not continued],
            preempted=list(self.preempted),
            running=len(self.running),
            waiting=len(self.waiting),
            free_blocks=self.free,
        )

    def decide(self, now_ns: int) -> StepShape | None:
        """Decides the next step. Its decodes are `sequences`, `context` and `longest`; `rows` are its prompts.

        Returns:
            the shape of a step with prompts; None if it has decodes only (they alone are then the shape).
        """
        step = self.step
        if self.rows:
            self.rows, self.prefill = [], []
        if self.preempted:
            self.preempted = []
        due = self.due[step % self.block_size]
        if due:
            if due <= self.free:
                self.free -= due
                if self.cache is not None:
                    self.cache.take(due)
            else:
                self._take_or_preempt(step)
        sequences = self.sequences = self.decodes
        self.context = self.base_sum + sequences * step
        base_max = self.base_max
        self.longest = (self.find_base_max() if base_max is None else base_max) + step if sequences else 0
        self.step = step + 1
        if self.waiting or self.partial is not None:
            if self.cache is not None:
                self.cache.step = step + 1 - self.asynchronous  # the newest token of a decode is not known then
            budget = self.max_num_batched_tokens - self.sequences
            if self.partial is not None:
                budget -= self._continue_partial(self.partial, budget)
            if self.waiting and budget > 0 and not self.preempted:
                self._admit(budget, now_ns)
            if self.rows:
                # Rows that sample have just joined the decodes, for the next step on.
                return StepShape(tuple(self.prefill), self.sequences, self.context, self.longest, self.decodes)
        return None

    def admit_alone(self, now_ns: int) -> Request | None:
        """`decide` for the most common step with a prompt, in a third of the time: without a cache or a partial prompt, one
        request waits, and it fits whole.

        Returns:
            the request admitted; None if this step is another one, and is still to be decided.
        """
        request = self.waiting[0]
        if self.partial is not None or self.cache is not None or request.preemptions or len(self.waiting) > 1:
            return None
        step, size, sequences, tokens = self.step, self.block_size, self.decodes, request.prompt_tokens
        free = self.free - self.due[step % size] - (tokens + size - 1) // size
        if (
            free < (self.watermark_blocks if sequences else 0)
            or sequences >= self.max_num_seqs
            or tokens > self.max_num_batched_tokens - sequences
        ):
            return None
        self.waiting.popleft()
        self.free = free
        self.sequences = sequences
        self.context = self.base_sum + sequences * step
        base_max = self.base_max
        if not sequences:
            self.longest = base_max = 0
        else:
            if base_max is None:
                base_max = self.find_base_max()
            self.longest = base_max + step
        self.step = step = step + 1
        request.status = _RUNNING
        request.cached_tokens = 0
        request.first_scheduled_ns = now_ns
        order = request.scheduled_order = self.admissions = self.admissions + 1
        self.running[request] = None
        base = request.base = tokens - step
        self.due[-base % size] += 1
        self.decodes = sequences + 1
        self.base_sum += base
        if base > base_max or not sequences:
            self.base_max = base
        last = request.last_step = step + request.stop_after - 2
        heappush(self.finishes, (last, order, request))
        return request

    def update(self, plan: object = None, accepted: object = None, proposed: object = None) -> list[Request]:
        """The step decided last has run; returns those whose answer it completed."""
        finished: list[Request] = []
        finishes, step, running, cache = self.finishes, self.step, self.running, self.cache
        while finishes and finishes[0][0] < step:
            request = heappop(finishes)[2]
            del running[request]
            self._forget_decode(request)
            if cache is None:  # `_release`, without the call
                self.free -= -(request.base + step) // self.block_size
            else:
                self.free += cache.release(request, request.base + step)
            request.num_outputs = request.stop_after
            request.status = _FINISHED
            finished.append(request)
        if cache is not None:
            for request in finished:
                cache.close(request)
        return finished

    def find_base_max(self) -> int:
        """The largest `base` of the decodes, after the one who had it has gone."""
        self.base_max = found = max((r.base for r in self.running if r is not self.partial), default=0)
        return found

    def decoding(self) -> list[Request]:
        """Those that compute an answer token in every step, in admission order."""
        return [request for request in self.running if request is not self.partial]

    @property
    def first_may_hit_more(self) -> bool:
        """The first in the queue quotes an answer that is being written, so what it finds in the cache grows by the step."""
        if self.cache is None or not self.waiting:
            return False
        writers = self.cache.writers
        return any(node.key in writers for node in self.waiting[0].text.nodes)

    def outputs_of(self, request: Request, in_flight: bool) -> int:
        """Answer tokens that a request has now; `in_flight`: those of the step decided last are not out yet."""
        if request in self.running and request is not self.partial:
            return request.base + self.step + 1 - request.prompt_tokens - in_flight
        return request.num_outputs

    # -- the parts of a decision ---------------------------------------------------------------------------------------

    def take(self, blocks: int) -> None:
        """Blocks leave the free queue (the caller has looked at `free`)."""
        self.free -= blocks
        if self.cache is not None:
            self.cache.take(blocks)

    def _release(self, request: Request, computed: int, known: int | None = None) -> None:
        """A request that holds the blocks of `computed` tokens, the text of all or of `known` of them known, gives them back."""
        if self.cache is None:
            self.free += -(-computed // self.block_size)
        else:
            self.free += self.cache.release(request, computed, known)

    def _take_or_preempt(self, step: int) -> None:
        """Blocks for the decodes that need one, in admission order; the last admitted pays when none is left."""
        size = self.block_size
        for request in [r for r in self.decoding() if (r.base + step) % size == 0]:
            if request not in self.running:
                continue
            while self.free < 1:
                victim = next(reversed(self.running))
                self._preempt(victim)
                if victim is request:
                    return
            self.take(1)

    def _continue_partial(self, request: Request, budget: int) -> int:
        """One more chunk of the prompt that is partly computed; returns its tokens."""
        computed = request.computed
        n = min(request.num_tokens - computed, budget)
        size = self.block_size
        new = -(-(computed + n) // size) - -(-computed // size)
        if new > self.free:  # it is the last admitted itself
            self._preempt(request)
            return 0
        self.take(new)
        self.partial = None
        self._schedule(request, n, computed)
        return n

    def _admit(self, budget: int, now_ns: int) -> None:
        config, cache, size = self.config, self.cache, self.block_size
        waiting, running = self.waiting, self.running
        match: Match = []
        hit = unowned = 0
        while waiting and budget > 0 and len(running) < self.max_num_seqs:
            request = waiting[0]
            tokens = request.prompt_tokens + request.num_outputs
            if cache is not None:
                match = cache.find_prefix(request, tokens)
                hit, unowned = (match[-1][2] * size, cache.unowned(match)) if match else (0, 0)
            new = n = tokens - hit
            if n > budget:
                if not config.enable_chunked_prefill:
                    return
                n = budget
            blocks = (n + size - 1) // size
            needed = (new + size - 1) // size if config.scheduler_reserve_full_isl else blocks
            if config.watermark and running:
                needed += config.watermark_blocks
            if needed + unowned > self.free:
                return
            waiting.popleft()
            self.free -= blocks
            if cache is not None:
                self.free -= cache.claim(request, match)
                cache.take(blocks)
                self.prefix.count(tokens, hit, request.preemptions > 0)
            if not request.preemptions:
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
            self.prefill.append((n, context))
            self.partial = request
            request.computed = end
            return
        if n == 1 and outputs:  # all but its newest token was found in the cache: a decode
            self.sequences += 1
            self.context += context
            self.longest = max(self.longest, context)
        else:
            self.prefill.append((n, context))
        base = request.base = end - self.step  # this step has been counted already
        self.due[-base % self.block_size] += 1
        self.decodes += 1
        self.base_sum += base
        if self.base_max is not None and (self.decodes == 1 or base > self.base_max):
            self.base_max = base
        # The step that computes the last answer token but one, and by that yields the last.
        last = request.last_step = request.prompt_tokens + request.stop_after - 2 - base
        heappush(self.finishes, (last, request.scheduled_order, request))
        if cache is not None:
            cache.writers[request.text.answer] = request

    def _forget_decode(self, request: Request) -> None:
        """The sums forget a decode: it computes nothing more."""
        base = request.base
        self.decodes -= 1
        self.base_sum -= base
        if base == self.base_max:
            self.base_max = None
        self.due[-base % self.block_size] -= 1
        if self.cache is not None:
            del self.cache.writers[request.text.answer]

    def _remove(self, request: Request) -> None:
        """A request leaves the running set before its end."""
        del self.running[request]
        if request is self.partial:
            self.partial = None
            self._release(request, request.computed)
        else:
            self.finishes.remove((request.last_step, request.scheduled_order, request))
            heapify(self.finishes)
            self._forget_decode(request)
            self._release(request, request.base + self.step, self._known(request))

    def _known(self, request: Request) -> int | None:
        """Of how many tokens that a decode has computed the text is known, None: of all."""
        return None

    def _preempt(self, victim: Request) -> None:
        if victim is not self.partial:
            victim.num_outputs = victim.base + self.step + 1 - victim.prompt_tokens
        self._remove(victim)
        victim.computed = 0
        victim.status = _PREEMPTED
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        self.preempted.append(victim)
