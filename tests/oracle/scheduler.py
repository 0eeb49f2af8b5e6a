"""The reference scheduler: chunked batching, FCFS or priority, one block object a block, one tuple element a token.

Written from the semantics and the recorded traces alone, without looking at `serving.scheduler`, so that a mistake would
have to be made twice. It keeps every state of its own (`Seat`), and reads of a request what a client sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from serving.config import EngineConfig
from serving.plan import Admission, Scheduled, StepPlan, StepShape
from serving.request import Request
from tests.oracle.blocks import Block, Blocks, Hash


@dataclass
class Prefix:
    """Tokens asked for and found at first admissions, and at admissions after a preemption."""

    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0


@dataclass(eq=False)
class Seat:
    """The engine's state of one request."""

    request: Request
    text: list[Hashable]
    own_key: Hashable
    computed: int = 0
    outputs: int = 0
    resumes: bool = False
    table: list[Block] = field(default_factory=list)
    hashes: list[Hash] = field(default_factory=list)

    @property
    def urgency(self) -> tuple[int, float, int]:
        """Smallest first."""
        return (self.request.priority, self.request.arrival_order, self.request.index)


class OracleScheduler:
    """Same interface as `serving.scheduler.Scheduler`."""

    def __init__(self, config: EngineConfig) -> None:
        assert self.supports(config), "the oracle knows chunked batching, FCFS and priority"
        self.config = config
        self.blocks = Blocks(config.usable_blocks, config.enable_prefix_caching)
        self.seats: dict[int, Seat] = {}
        self.running_seats: list[Seat] = []
        self.waiting_seats: list[Seat] = []
        self.prefix = Prefix()
        self.step = 0
        self.self_preempted: list[Request] = []

    @staticmethod
    def supports(config: EngineConfig) -> bool:
        return config.batching == "chunked" and config.policy in ("fcfs", "priority")

    @property
    def running(self) -> list[Request]:
        return [seat.request for seat in self.running_seats]

    @property
    def waiting(self) -> list[Request]:
        return [seat.request for seat in self.waiting_seats]

    @property
    def free_blocks(self) -> int:
        return len(self.blocks.free)

    @property
    def has_work(self) -> bool:
        return bool(self.seats)

    def block_table(self, request: Request) -> list[int]:
        return [block.number for block in self.seats[request.index].table]

    def add(self, request: Request) -> None:
        text: list[Hashable] = [(key, position) for key, n in request.prompt for position in range(n)]
        own_key = ("answer of", request.index) if request.output_key is None else request.output_key
        seat = self.seats[request.index] = Seat(request, text, own_key)
        self.waiting_seats.append(seat)
        self._sort_waiting()

    def abort(self, request: Request) -> bool:
        """Drops a request wherever it is; False if the engine does not hold it."""
        seat = self.seats.pop(request.index, None)
        if seat is None:
            return False
        if seat in self.running_seats:
            self.running_seats.remove(seat)
        else:
            self.waiting_seats.remove(seat)
        self._release(seat)
        return True

    # ------------------------------------------------------------------ schedule

    def schedule(self, now_ns: int = 0) -> StepPlan:
        config = self.config
        self.budget = config.max_num_batched_tokens
        self.crowded = len(self.running_seats) + len(self.waiting_seats) > 1
        self.chosen: list[tuple[Seat, int]] = []
        self.preempted: list[Seat] = []
        self.self_preempted = []
        admitted: list[Admission] = []
        self._schedule_running()
        if not self.preempted:
            while self.waiting_seats and self.budget > 0 and len(self.running_seats) < config.max_num_seqs:
                admission = self._admit(self.waiting_seats[0])
                if admission is None:
                    break
                admitted.append(admission)
        plan = StepPlan(
            step=self.step,
            scheduled=[
                Scheduled(s.request, n, s.computed, samples=s.computed + n == len(s.text)) for s, n in self.chosen
            ],
            shape=self._shape(),
            admitted=admitted,
            preempted=[seat.request for seat in self.preempted],
            running=len(self.running_seats),
            waiting=len(self.waiting_seats),
            free_blocks=self.free_blocks,
        )
        for seat, n in self.chosen:
            seat.computed += n
        self.step += 1
        return plan

    def _schedule_running(self) -> None:
        done: list[Seat] = []
        while self.budget > 0:
            seat = next((s for s in self.running_seats if s not in done), None)
            if seat is None:
                return
            done.append(seat)
            n = min(self._cap(len(seat.text) - seat.computed), self.budget)
            n = min(n, self.config.max_model_len - seat.computed - 1)
            if n == 0:
                continue
            while not self._allocate(seat, n):
                victim = self._victim()
                self._preempt(victim)
                if victim is seat:
                    self.self_preempted.append(seat.request)
                    return
            self.chosen.append((seat, n))
            self.budget -= n

    def _admit(self, seat: Seat) -> Admission | None:
        """Moves the head of the queue into the running set, or says None: then nobody else gets in either."""
        config = self.config
        hashes = self._hashes(seat, len(seat.text) - 1) if config.enable_prefix_caching else []
        hits = self.blocks.lookup(hashes)
        hit_tokens = len(hits) * config.block_size
        n = self._cap(len(seat.text) - hit_tokens)
        if n > self.budget and not config.enable_chunked_prefill:
            return None
        n = min(n, self.budget)
        keep = config.watermark_blocks if self.running_seats else 0
        whole = min(len(seat.text), config.max_model_len)
        room_for = whole if config.scheduler_reserve_full_isl else hit_tokens + n
        idle_hits = sum(block.owners == 0 for block in hits)
        if self._count(room_for) - len(hits) + idle_hits > self.free_blocks - keep:
            return None
        self.blocks.hold(hits)
        seat.table = list(hits)
        seat.computed = hit_tokens
        assert self._allocate(seat, n)
        self.waiting_seats.remove(seat)
        self.running_seats.append(seat)
        self.chosen.append((seat, n))
        self.budget -= n
        admission = Admission(seat.request, hit_tokens, seat.resumes)
        self._count_hits(seat, hit_tokens)
        return admission

    def _cap(self, n: int) -> int:
        threshold = self.config.long_prefill_token_threshold
        return min(n, threshold) if threshold > 0 and self.crowded else n

    def _count(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.config.block_size)

    def _allocate(self, seat: Seat, n: int) -> bool:
        """Makes room for n tokens more and publishes the blocks they fill; False if there is too little."""
        new = self._count(seat.computed + n) - len(seat.table)
        if new > self.free_blocks:
            return False
        seat.table += self.blocks.take(max(new, 0))
        if self.config.enable_prefix_caching:
            for block, hash_ in zip(seat.table, self._hashes(seat, seat.computed + n), strict=False):
                if block.hash is None:
                    self.blocks.publish(block, hash_)
        return True

    def _hashes(self, seat: Seat, tokens: int) -> list[Hash]:
        """Of the full blocks within the first so many tokens (texts only grow, so those known stay true)."""
        self.blocks.chain(seat.hashes, seat.text, self.config.block_size)
        return seat.hashes[: tokens // self.config.block_size]

    def _victim(self) -> Seat:
        if self.config.policy == "fcfs":
            return self.running_seats[-1]
        return max(self.running_seats, key=lambda seat: seat.urgency[:2])  # of equals the first

    def _preempt(self, seat: Seat) -> None:
        for entry in self.chosen:
            if entry[0] is seat:
                self.budget += entry[1]
                self.chosen.remove(entry)
                break
        self.running_seats.remove(seat)
        self._release(seat)
        seat.computed = 0
        seat.resumes = True
        self.waiting_seats.insert(0, seat)
        self._sort_waiting()
        self.preempted.append(seat)

    def _release(self, seat: Seat) -> None:
        self.blocks.release(seat.table)
        seat.table = []

    def _sort_waiting(self) -> None:
        if self.config.policy == "priority":
            self.waiting_seats.sort(key=lambda seat: seat.urgency)

    def _count_hits(self, seat: Seat, hit_tokens: int) -> None:
        if not self.config.enable_prefix_caching:
            return
        if seat.resumes:
            self.prefix.preempted_requests += 1
            self.prefix.preempted_queries += len(seat.text)
            self.prefix.preempted_hits += hit_tokens
        else:
            self.prefix.requests += 1
            self.prefix.queries += len(seat.text)
            self.prefix.hits += hit_tokens

    def _shape(self) -> StepShape:
        """What the step costs. A row that computes the newest answer token and nothing else is a decode, all others are
        prefill chunks, be they a single token long."""
        prefill: list[tuple[int, int]] = []
        decodes: list[int] = []
        sampled = 0
        for seat, n in self.chosen:
            ends = seat.computed + n == len(seat.text)
            sampled += ends
            if ends and n == 1 and seat.outputs > 0:
                decodes.append(seat.computed)
            else:
                prefill.append((n, seat.computed))
        return StepShape(tuple(prefill), len(decodes), sum(decodes), max(decodes, default=0), sampled)

    # ------------------------------------------------------------------ update

    def update(self, plan: StepPlan) -> list[Request]:
        """One token for every row that samples and still runs; returns those that ended."""
        finished = []
        for row in plan.scheduled:
            seat = self.seats.get(row.request.index)
            if seat is None or not row.samples:
                continue
            seat.text.append((seat.own_key, seat.outputs))
            seat.outputs += 1
            if seat.outputs >= row.request.stops_after(self.config.max_model_len):
                self._release(seat)
                self.running_seats.remove(seat)
                del self.seats[row.request.index]
                finished.append(row.request)
        return finished
