"""The scheduler: every batch of every run is decided here (vLLM V1 semantics, checked step by step against recordings).

Lay it beside vLLM's or nano-vllm's: the names are theirs. It knows no clock and no costs; a driver calls `schedule()`,
runs the plan on a device or on a cost model, and calls `update()`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice, takewhile

from serving.batching import BATCHINGS, Batching
from serving.block_pool import BlockPool
from serving.capacity import CAPACITIES
from serving.config import EngineConfig
from serving.contiguous_pool import ContiguousPool
from serving.host_memory import HostMemory
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.policies import ORDERS
from serving.prefix_stats import PrefixStats
from serving.request import Request, Status
from serving.speculation import Speculation
from serving.waiting_queue import WaitingQueue

_BARREN = 1000  # preemptions per open request without one token in between: far beyond any run that gets on


class LivelockError(RuntimeError):
    """Requests preempt one another for ever under these settings, as they would in the engine that is modelled."""


class Scheduler:
    """Decides one step after another for one engine replica.

    running: requests that hold blocks, in admission order. waiting: all others that were added and have not ended.

    Under asynchronous scheduling a driver calls `schedule()` for the next step before `update()` of the one in flight: every row
    that samples then counts as if its token, and its drafts, were there already (`Request.placeholders`).
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.order = ORDERS[config.policy]()
        self.capacity = CAPACITIES[config.capacity_scheduler_policy](config, self.order)
        self.batching: Batching = BATCHINGS[config.batching]()
        self.host = HostMemory(config.swap_blocks if config.preemption == "swap" else 0, config.offload_blocks)
        self.pool = pool_of(config, self.host)
        self.running: list[Request] = []
        self.queue = WaitingQueue(self.order.key)
        self.swapped: deque[Request] = deque()  # the last one out first
        self.prefix = PrefixStats()
        self.speculation = Speculation(config)
        self.step = 0
        self.barren_preemptions = 0  # since the last token
        # of the step being decided
        self.now_ns = 0
        self.budget = 0
        self.chunk_limit = 0
        self.scheduled: list[Scheduled] = []
        self.admitted: list[Admission] = []
        self.preempted: list[Request] = []

    @property
    def waiting(self) -> list[Request]:
        return self.queue.requests

    @property
    def free_blocks(self) -> int:
        return self.pool.free_blocks

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.queue.requests or self.swapped)

    def add(self, request: Request) -> None:
        request.status = Status.WAITING
        request.drafts = request.placeholders = 0
        request.prefilling = True
        request.text = None
        request.host_slots = []
        self.pool.open(request)
        self.queue.add(request)
        self.order.added(request)

    def abort(self, request: Request) -> bool:
        """Ends a request wherever it is and frees its blocks; False if it had ended or never came."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.pool.free(request)
        elif request in self.queue.requests:
            self.queue.requests.remove(request)
        elif request in self.swapped:
            self._forget_swapped(request)
        else:
            return False
        request.status = Status.ABORTED
        return True

    def schedule(self, now_ns: int = 0) -> StepPlan:
        """Decides the next step. The plan is empty when nothing can run."""
        config = self.config
        self.now_ns = now_ns
        self.budget = config.max_num_batched_tokens
        alone = len(self.running) + len(self.waiting) + len(self.swapped) <= 1
        self.chunk_limit = 0 if alone else config.long_prefill_token_threshold
        self.scheduled, self.admitted, self.preempted = [], [], []
        self.batching(self)
        if self.preempted:
            self._watch_progress()
        self.capacity.decided(self.running, not self.admitted, len(self.preempted))
        plan = StepPlan(
            step=self.step,
            scheduled=self.scheduled,
            shape=shape_of(self.scheduled),
            admitted=self.admitted,
            preempted=self.preempted,
            running=len(self.running),
            waiting=len(self.waiting) + len(self.swapped),
            free_blocks=self.pool.free_blocks,
            propose=self.speculation.wanted(len(self.running)),
            moves=self.host.take_moves() if self.scheduled else (),
            stranded_blocks=self.pool.stranded_blocks,
        )
        for row in self.scheduled:
            self._count_as_computed(row, plan.propose)
        self.step += 1
        return plan

    def continue_running(self, prefills_only: bool = False) -> None:
        """One more chunk or token, and its drafts, for those that run, in admission order; preempts when blocks run out."""
        self._go_on(prefills_only, False)

    def continue_decodes(self) -> None:
        """`continue_running` for decodes alone."""
        self._go_on(False, True)

    def continue_prefills(self) -> bool:
        """One more chunk for those whose prompt is not complete, without taking a decode's blocks. False if one lacks blocks,
        and waits for a decode to end."""
        return self._go_on(True, False, spare_decodes=True)

    def _go_on(self, prefills_only: bool, decodes_only: bool, spare_decodes: bool = False) -> bool:
        i, slots, running = 0, self.speculation.input_slots, self.running
        pool, size, window = self.pool, self.config.block_size, self.config.max_model_len
        all_have_room = True
        while i < len(running) and self.budget > slots:
            request = running[i]
            n = request.expected_tokens + request.drafts - request.computed
            if n > 1:
                n = min(self._cut(n), self.budget - slots)
            n = min(n, window - 1 - request.computed)
            decodes = is_decoding(request, request.computed)
            if n <= 0 or self._ends_in_flight(request) or (prefills_only if decodes else decodes_only):
                i += 1
                continue
            held = self._held(request.computed + n)
            has_room = True
            while held > len(request.blocks) * size and not pool.allocate(request, held):
                rivals = [r for r in running if not is_decoding(r, r.computed)] if spare_decodes else running
                victim = self.capacity.victim(rivals)
                if spare_decodes and victim is request:
                    has_room = all_have_room = False
                    break
                passed = running.index(victim) < i
                had_row = self._preempt(victim)
                # Where prompts alone run, one behind a decode that was left out and is now gone waits for the next step.
                i -= passed and (had_row or not prefills_only or spare_decodes)
                if victim is request:
                    return True
            if has_room:
                self._schedule(request, n)
            i += 1
        return all_have_room

    def bring_back(self) -> None:
        """Swapped-out requests run on, the last one out first, while budget, sequences and blocks allow."""
        config, pool, slots = self.config, self.pool, self.speculation.input_slots
        while self.swapped and self.budget > slots and len(self.running) < config.max_num_seqs:
            request = self.swapped[0]
            kept = -(-request.computed // config.block_size)
            # What the device still has of it need not be copied.
            hits = [*takewhile(lambda block: block >= 0, pool.find_prefix(request))][
                : request.computed // config.block_size
            ]
            n = min(self._cut(request.num_tokens - request.computed), self.budget - slots)
            takes = self._held(request.computed + n)
            kept_free = config.watermark_blocks if self.running else 0
            if pool.blocks_needed(request, self.capacity.room_for(request, takes), hits) + kept_free > pool.free_blocks:
                return
            self.swapped.popleft()
            pool.open(request, hits)
            pool.allocate(request, takes, hits)
            self.host.swap.bring_back(request, len(hits), kept)
            request.status = Status.RUNNING
            self.running.append(request)
            self._schedule(request, n)

    def admit_waiting(self) -> None:
        """Starts waiting requests, best first, until budget, sequences or blocks end; nobody overtakes the first, nor anybody
        who is swapped out."""
        if self.swapped:
            return
        config, pool, slots = self.config, self.pool, self.speculation.input_slots
        anything_runs = bool(self.scheduled)
        decodes_alone = not any(row.request.prefilling for row in self.scheduled)
        waiting, order = self.waiting, self.order
        if waiting and self.budget > slots and len(self.running) < config.max_num_seqs:
            order.prepare(waiting, pool, self.now_ns)
        while waiting and self.budget > slots and len(self.running) < config.max_num_seqs:
            first = order.first(waiting)
            request, budget = waiting[first], self.budget - slots
            hits = pool.find_prefix(request)
            hit_tokens = len(hits) * config.block_size
            dummies = self.speculation.padding(request.num_tokens, hit_tokens, decodes_alone, anything_runs)
            n = request.num_tokens - hit_tokens + dummies
            if dummies and n > budget:
                return
            n = self._cut(n)
            if not config.enable_chunked_prefill and n > budget:
                return
            n = min(n, budget)
            # The whole sequence must have room though only this chunk takes blocks: else prompts over-admit and thrash.
            takes = self._held(hit_tokens + n)
            room_for = self.capacity.room_for(request, takes)
            kept_free = self.capacity.promised(self.running) + (config.watermark_blocks if self.running else 0)
            if pool.blocks_needed(request, room_for, hits) + kept_free > pool.free_blocks:
                return
            self.queue.pop(first)
            resumed = request.status is Status.PREEMPTED
            pool.open(request, hits)
            pool.allocate(request, takes, hits)
            request.status = Status.RUNNING
            request.computed = hit_tokens
            if not resumed:
                request.cached_tokens = hit_tokens
            if config.enable_prefix_caching:
                self.prefix.count(request.num_tokens, hit_tokens, resumed)
            self.running.append(request)
            self.capacity.admitted(request)
            order.admitted(request, resumed)
            self.admitted.append(Admission(request, hit_tokens, resumed))
            self._schedule(request, n)

    def prompts_in_sight(self) -> int:
        """Tokens of the waiting prompts that sequences and budget have room for."""
        budget, tokens = self.budget, 0
        for request in islice(self.waiting, self.config.max_num_seqs - len(self.running)):
            if request.num_tokens > budget - tokens:
                break
            tokens += request.num_tokens
        return tokens

    def update(
        self, plan: StepPlan, accepted: Mapping[int, int] | None = None, proposed: Mapping[int, int] | None = None
    ) -> list[Request]:
        """Gives every row that sampled its tokens; returns those that have ended by them.

        Args:
            accepted: drafts that stand, by request index; one token more comes out.
            proposed: drafts that were found for the next step, by request index, where scheduling is synchronous.
        """
        accepted, proposed = accepted or {}, proposed or {}
        finished = []
        for row in plan.scheduled:
            request = row.request
            if not row.samples or request.status > Status.PREEMPTED:  # a row in flight of one that has ended is wasted
                continue
            self.barren_preemptions = 0
            stand = min(accepted.get(request.index, 0), row.drafts) if row.drafts and not row.padded else 0
            if self._deliver(request, row.drafts, stand):
                self._finish(request)
                finished.append(request)
            elif plan.propose and not self.config.async_scheduling:
                request.drafts = min(proposed.get(request.index, 0), plan.propose)
        if finished:
            self.running = [request for request in self.running if request.status is Status.RUNNING]
        return finished

    def _deliver(self, request: Request, drafts: int, stand: int) -> bool:
        """The drafts that stand and one token more are out; rejected ones give back what was counted for them, but for their
        blocks. True if the request ends by it."""
        stop = request.stops_after(self.config.max_model_len)
        before = request.num_outputs
        request.num_outputs = min(before + stand + 1, stop)
        if self.order.keeps_accounts:
            self.order.delivered(request, request.num_outputs - before)
        if request.status is Status.RUNNING or request.host_slots:  # else it was preempted, and its KV is gone
            request.computed -= drafts - stand
            if self.config.async_scheduling:
                request.placeholders -= drafts + 1
                if self.pool.caching and request.status is Status.RUNNING:
                    self.pool.publish(request, request.num_tokens - 1)  # the text of full blocks is known only now
        return request.num_outputs >= stop

    def _finish(self, request: Request) -> None:
        if request.host_slots:  # its last token was in flight when it lost its blocks
            self._forget_swapped(request)
        elif request.status is Status.PREEMPTED:
            self.queue.requests.remove(request)
        self.pool.free(request)
        request.status = Status.FINISHED

    def _forget_swapped(self, request: Request) -> None:
        self.swapped.remove(request)
        self.host.swap.drop(request)

    def _count_as_computed(self, row: Scheduled, propose: int) -> None:
        """The row will have run when the next step starts."""
        request = row.request
        request.computed += row.tokens
        request.prefilling = not row.samples
        if row.samples and self.config.async_scheduling:
            request.placeholders += row.drafts + 1
            request.drafts = propose

    def _ends_in_flight(self, request: Request) -> bool:
        """Whether the steps in flight yield the last token that the client wants, even if all their drafts are rejected."""
        return (
            request.placeholders > 0
            and request.computed - request.placeholders + 2 >= request.prompt_tokens + request.max_tokens
        )

    def _held(self, tokens: int) -> int:
        """Tokens that a request takes blocks for when it is to hold the KV of `tokens`."""
        return min(tokens + self.speculation.lookahead, self.config.max_model_len)

    def _watch_progress(self) -> None:
        self.barren_preemptions += len(self.preempted)
        if self.barren_preemptions > _BARREN * (len(self.running) + len(self.waiting)):
            raise LivelockError(
                f"step {self.step}: {self.barren_preemptions} preemptions without a token: requests of equal rank take "
                f"each other's blocks for ever. Set scheduler_reserve_full_isl: true, or give them more KV blocks"
            )

    def _cut(self, n: int) -> int:
        return min(n, self.chunk_limit) if self.chunk_limit else n

    def _schedule(self, request: Request, n: int) -> None:
        self.budget -= n + self.speculation.input_slots
        context = request.computed
        beyond = context + n - request.expected_tokens
        drafts = beyond if beyond > 0 else 0
        if self.pool.caching:
            self.pool.publish(request, context + n)
        self.scheduled.append(Scheduled(request, n, context, beyond >= 0, drafts, drafts > request.drafts))
        request.drafts = 0  # those that were cut are lost

    def _preempt(self, victim: Request) -> bool:
        """Takes all blocks from `victim`, and its KV unless that is swapped out. True if it had a row in this step already, whose
        budget then comes back."""
        self.running.remove(victim)
        swapped = self.host.swap.put(victim, -(-victim.computed // self.config.block_size))
        self.pool.free(victim)
        victim.drafts = 0
        victim.status = Status.PREEMPTED
        victim.preemptions += 1
        if swapped:
            self.swapped.appendleft(victim)
        else:
            victim.computed = victim.placeholders = 0
            self.capacity.put_back(self.queue, victim)
        self.preempted.append(victim)
        for position, row in enumerate(self.scheduled):
            if row.request is victim:
                self.budget += row.tokens + self.speculation.input_slots
                del self.scheduled[position]
                return True
        return False


def pool_of(config: EngineConfig, host: HostMemory) -> BlockPool | ContiguousPool:
    """The KV memory that these settings ask for."""
    if config.kv_allocation == "contiguous":
        return ContiguousPool(config)
    caches = config.enable_prefix_caching
    return BlockPool(config.usable_blocks, config.block_size, caches, host.tier, config.pinned_prefixes)


def is_decoding(request: Request, context: int) -> bool:
    """Whether a row behind `context` tokens computes nothing but the newest token of an answer, and drafts."""
    return context == request.expected_tokens - 1 and context >= request.prompt_tokens


def shape_of(rows: list[Scheduled]) -> StepShape:
    """The shape of a step, before its rows are counted as computed."""
    prefill: list[tuple[int, int]] = []
    contexts: list[int] = []
    sampled = drafts = 0
    for row in rows:
        if row.tokens == 1 and is_decoding(row.request, row.context):
            contexts.append(row.context)
        else:
            prefill.append((row.tokens, row.context))
        sampled += row.samples + row.drafts
        drafts += row.drafts
    return StepShape(tuple(prefill), len(contexts), sum(contexts), max(contexts, default=0), sampled, drafts)
