"""The scheduler: every batch of every run is decided here (vLLM V1 semantics, checked step by step against recordings).

Lay it beside vLLM's or nano-vllm's: the names are theirs. It knows no clock and no costs; a driver calls `schedule()`,
runs the plan on a device or on a cost model, and calls `update()`.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from serving.batching import BATCHINGS, Batching
from serving.block_pool import BlockPool
from serving.config import EngineConfig
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.policies import ORDERS
from serving.request import Request, Status

_BARREN = 1000  # preemptions per open request without one token in between: far beyond any run that gets on


class LivelockError(RuntimeError):
    """Requests preempt one another for ever under these settings, as they would in the engine that is modelled."""


@dataclass(slots=True)
class PrefixStats:
    """Prefix-cache look-ups in tokens: each request once at first admission; re-admissions are counted apart."""

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def count(self, tokens: int, hit_tokens: int, resumed: bool) -> None:
        if resumed:
            self.preempted_requests += 1
            self.preempted_queries += tokens
            self.preempted_hits += hit_tokens
        else:
            self.requests += 1
            self.queries += tokens
            self.hits += hit_tokens


class WaitingQueue:
    """Waiting requests in order of arrival (preempted ones first), or sorted by a key."""

    def __init__(self, key: Callable[[Request], Any] | None) -> None:
        self.key = key
        self.requests: deque[Request] | list[Request] = deque() if key is None else []

    def add(self, request: Request) -> None:
        if self.key is None:
            self.requests.append(request)
        else:
            insort(self.requests, request, key=self.key)

    def put_back(self, request: Request) -> None:
        """A preempted request returns: to the front, unless a key sorts it."""
        if self.key is None:
            self.requests.insert(0, request)
        else:
            insort(self.requests, request, key=self.key)

    def pop(self) -> Request:
        return self.requests.popleft() if isinstance(self.requests, deque) else self.requests.pop(0)


class Scheduler:
    """Decides one step after another for one engine replica.

    running: requests that hold blocks, in admission order. waiting: all others that were added and have not ended.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.order = ORDERS[config.policy]
        self.batching: Batching = BATCHINGS[config.batching]()
        self.pool = BlockPool(config.usable_blocks, config.block_size, config.enable_prefix_caching)
        self.running: list[Request] = []
        self.queue = WaitingQueue(self.order.key)
        self.prefix = PrefixStats()
        self.step = 0
        self.barren_preemptions = 0  # since the last token
        # of the step being decided
        self.budget = 0
        self.chunk_limit = 0
        self.scheduled: list[Scheduled] = []
        self.admitted: list[Admission] = []
        self.preempted: list[Request] = []

    @property
    def waiting(self) -> deque[Request] | list[Request]:
        return self.queue.requests

    @property
    def free_blocks(self) -> int:
        return self.pool.free_blocks

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.queue.requests)

    def add(self, request: Request) -> None:
        request.status = Status.WAITING
        request.text = None
        self.pool.open(request)
        self.queue.add(request)

    def abort(self, request: Request) -> bool:
        """Ends a request wherever it is and frees its blocks; False if it had ended or never came."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.pool.free(request)
        elif request in self.queue.requests:
            self.queue.requests.remove(request)
        else:
            return False
        request.status = Status.ABORTED
        return True

    def schedule(self, now_ns: int = 0) -> StepPlan:
        """Decides the next step. The plan is empty when nothing can run."""
        config = self.config
        self.budget = config.max_num_batched_tokens
        alone = len(self.running) + len(self.waiting) <= 1
        self.chunk_limit = 0 if alone else config.long_prefill_token_threshold
        self.scheduled, self.admitted, self.preempted = [], [], []
        self.batching(self)
        if self.preempted:
            self._watch_progress()
        plan = StepPlan(
            step=self.step,
            scheduled=self.scheduled,
            shape=shape_of(self.scheduled),
            admitted=self.admitted,
            preempted=self.preempted,
            running=len(self.running),
            waiting=len(self.waiting),
            free_blocks=self.pool.free_blocks,
        )
        for row in self.scheduled:
            row.request.computed += row.tokens
        self.step += 1
        return plan

    def continue_running(self, prefills_only: bool = False) -> None:
        """One more chunk or token for those that run, in admission order; preempts when blocks run out."""
        i = 0
        while i < len(self.running) and self.budget > 0:
            request = self.running[i]
            n = self._cut(request.num_tokens - request.computed)
            n = min(n, self.budget, self.config.max_model_len - 1 - request.computed)
            if n <= 0 or (prefills_only and is_decode(request, request.computed, n)):
                i += 1
                continue
            while not self.pool.allocate(request, request.computed + n):
                victim = self.order.victim(self.running)
                i -= self._preempt(victim)
                if victim is request:
                    return
            self._schedule(request, n)
            i += 1

    def admit_waiting(self) -> None:
        """Starts waiting requests, best first, until budget, sequences or blocks end; nobody overtakes the first."""
        config, pool = self.config, self.pool
        while self.waiting and self.budget > 0 and len(self.running) < config.max_num_seqs:
            request = self.waiting[0]
            hits = pool.find_prefix(request)
            hit_tokens = len(hits) * config.block_size
            n = self._cut(request.num_tokens - hit_tokens)
            if not config.enable_chunked_prefill and n > self.budget:
                return
            n = min(n, self.budget)
            # The whole sequence must have room though only this chunk takes blocks: else prompts over-admit and thrash.
            room_for = (
                min(request.num_tokens, config.max_model_len) if config.scheduler_reserve_full_isl else hit_tokens + n
            )
            kept_free = config.watermark_blocks if self.running else 0
            if pool.blocks_needed(request, room_for, hits) + kept_free > pool.free_blocks:
                return
            self.queue.pop()
            resumed = request.status is Status.PREEMPTED
            pool.open(request, hits)
            pool.allocate(request, hit_tokens + n, hits)
            request.status = Status.RUNNING
            request.computed = hit_tokens
            if not resumed:
                request.cached_tokens = hit_tokens
            if config.enable_prefix_caching:
                self.prefix.count(request.num_tokens, hit_tokens, resumed)
            self.running.append(request)
            self.admitted.append(Admission(request, hit_tokens, resumed))
            self._schedule(request, n)

    def update(self, plan: StepPlan) -> list[Request]:
        """Gives every row that sampled its token; returns those that have ended by it."""
        finished = []
        for row in plan.scheduled:
            request = row.request
            if row.samples and request.status is Status.RUNNING:
                self.barren_preemptions = 0
                request.num_outputs += 1
                if request.num_outputs >= request.stops_after(self.config.max_model_len):
                    request.status = Status.FINISHED
                    self.pool.free(request)
                    finished.append(request)
        if finished:
            self.running = [request for request in self.running if request.status is Status.RUNNING]
        return finished

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
        self.budget -= n
        end = request.computed + n
        self.pool.publish(request, end)
        self.scheduled.append(Scheduled(request, n, request.computed, samples=end == request.num_tokens))

    def _preempt(self, victim: Request) -> bool:
        """Takes everything from `victim` but its answer so far. True if it had its turn in this step already: then its
        budget comes back and the rows before it are one fewer."""
        self.running.remove(victim)
        self.pool.free(victim)
        victim.computed = 0
        victim.status = Status.PREEMPTED
        victim.preemptions += 1
        self.queue.put_back(victim)
        self.preempted.append(victim)
        for position, row in enumerate(self.scheduled):
            if row.request is victim:
                self.budget += row.tokens
                del self.scheduled[position]
                return True
        return False


def is_decode(request: Request, context: int, tokens: int) -> bool:
    """Whether a row computes exactly the newest token of an answer."""
    return tokens == 1 and request.num_outputs > 0 and context == request.num_tokens - 1


def shape_of(rows: list[Scheduled]) -> StepShape:
    """The shape of a step, before its rows are counted as computed."""
    prefill: list[tuple[int, int]] = []
    contexts: list[int] = []
    sampled = 0
    for row in rows:
        if is_decode(row.request, row.context, row.tokens):
            contexts.append(row.context)
        else:
            prefill.append((row.tokens, row.context))
        sampled += row.samples
    return StepShape(tuple(prefill), len(contexts), sum(contexts), max(contexts, default=0), sampled)
