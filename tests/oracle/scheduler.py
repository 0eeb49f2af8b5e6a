"""The reference scheduler: chunked batching, FCFS or priority, one block object a block, one tuple element a token.

Written from the semantics and the recorded traces alone, without looking at `serving.scheduler`, so that a mistake would
have to be made twice. It keeps every state of its own (`Seat`), and reads of a request what a client sent.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
    """The engine's state of one request.

    drafts: proposed and not yet scheduled. flights: drafts of each of its rows whose tokens are still to come. chunking: a part
    of what it has to compute before its next token is left.
    """

    request: Request
    text: list[Hashable]
    own_key: Hashable
    computed: int = 0
    outputs: int = 0
    drafts: int = 0
    flights: list[int] = field(default_factory=list)
    chunking: bool = True
    resumes: bool = False
    table: list[Block] = field(default_factory=list)
    hashes: list[Hash] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens of its text, with those that are still to come as if every draft in flight were right."""
        return len(self.text) + sum(drafts + 1 for drafts in self.flights)

    @property
    def urgency(self) -> tuple[int, float, int]:
        """Smallest first."""
        return (self.request.priority, self.request.arrival_order, self.request.index)


class OracleScheduler:
    """Same interface as `serving.scheduler.Scheduler`."""

    def __init__(self, config: EngineConfig) -> None:
        assert self.supports(config), "the oracle knows chunked batching, FCFS and priority, and what fits is admitted"
        self.config = config
        self.k = config.num_speculative_tokens if config.speculation != "none" else 0
        model_drafts = config.speculation == "draft"
        self.row_price = 1 if model_drafts else 0  # a draft model reads one token more of every row
        self.ahead = self.k if model_drafts else 0  # and writes KV of drafts before they are verified
        self.blocks = Blocks(config.usable_blocks, config.enable_prefix_caching)
        self.seats: dict[int, Seat] = {}
        self.running_seats: list[Seat] = []
        self.waiting_seats: list[Seat] = []
        self.prefix = Prefix()
        self.step = 0
        self.self_preempted: list[Request] = []

    @staticmethod
    def supports(config: EngineConfig) -> bool:
        plain = config.capacity_scheduler_policy == "max_utilization" and not config.batch_wait_timeout_iters
        return plain and config.plain_memory and config.batching == "chunked" and config.policy in ("fcfs", "priority")

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
        self.padded: list[Seat] = []
        self.self_preempted = []
        admitted: list[Admission] = []
        self._schedule_running()
        self.continued = [seat for seat, _ in self.chosen]
        if not self.preempted:
            while self.waiting_seats and self.budget > self.row_price and len(self.running_seats) < config.max_num_seqs:
                admission = self._admit(self.waiting_seats[0])
                if admission is None:
                    break
                admitted.append(admission)
        plan = StepPlan(
            step=self.step,
            scheduled=[
                Scheduled(s.request, n, s.computed, self._samples(s, n), self._drafts_of(s, n), s in self.padded)
                for s, n in self.chosen
            ],
            shape=self._shape(),
            admitted=admitted,
            preempted=[seat.request for seat in self.preempted],
            running=len(self.running_seats),
            waiting=len(self.waiting_seats),
            free_blocks=self.free_blocks,
            propose=self.k if not 0 < config.speculation_off_above < len(self.running_seats) else 0,
        )
        for seat, n in self.chosen:
            samples, drafts = self._samples(seat, n), self._drafts_of(seat, n)
            seat.chunking = not samples
            seat.computed += n
            seat.drafts = 0
            if samples:
                seat.flights.append(drafts)
                if config.async_scheduling:
                    seat.drafts = plan.propose
        self.step += 1
        return plan

    def _samples(self, seat: Seat, n: int) -> bool:
        return seat.computed + n >= seat.length

    def _drafts_of(self, seat: Seat, n: int) -> int:
        return max(0, seat.computed + n - seat.length)

    def _schedule_running(self) -> None:
        done: list[Seat] = []
        while self.budget > self.row_price:
            seat = next((s for s in self.running_seats if s not in done), None)
            if seat is None:
                return
            done.append(seat)
            if self._certainly_complete(seat):
                continue
            n = min(self._cap(seat.length + seat.drafts - seat.computed), self.budget - self.row_price)
            n = min(n, self.config.max_model_len - seat.computed - 1)
            if n <= 0:
                continue
            while not self._allocate(seat, n):
                victim = self._victim()
                self._preempt(victim)
                if victim is seat:
                    self.self_preempted.append(seat.request)
                    return
            self.chosen.append((seat, n))
            self.budget -= n + self.row_price

    def _certainly_complete(self, seat: Seat) -> bool:
        """Its length limit is reached by what is in flight, whichever drafts are right."""
        return bool(seat.flights) and seat.outputs + len(seat.flights) >= seat.request.max_tokens

    def _admit(self, seat: Seat) -> Admission | None:
        """Moves the head of the queue into the running set, or says None: then nobody else gets in either."""
        config = self.config
        hashes = self._hashes(seat, len(seat.text) - 1) if config.enable_prefix_caching else []
        hits = self.blocks.lookup(hashes)
        hit_tokens = len(hits) * config.block_size
        n, room = len(seat.text) - hit_tokens, self.budget - self.row_price
        pads = self._pads(n, hit_tokens, len(seat.text))
        if pads:
            n += self.k
            if n > room:
                return None
        n = self._cap(n)
        if n > room and not config.enable_chunked_prefill:
            return None
        n = min(n, room)
        keep = config.watermark_blocks if self.running_seats else 0
        room_for = min(hit_tokens + n + self.ahead, config.max_model_len)
        if config.scheduler_reserve_full_isl:
            room_for = max(room_for, min(len(seat.text), config.max_model_len))
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
        if pads and n > 1:  # not all of them cut again
            self.padded.append(seat)
        self.budget -= n + self.row_price
        admission = Admission(seat.request, hit_tokens, seat.resumes)
        self._count_hits(seat, hit_tokens)
        return admission

    def _pads(self, n: int, hit_tokens: int, tokens: int) -> bool:
        """A newcomer with a single token to compute looks like a decode, and gets dummy drafts to look like the others."""
        if n != 1 or not self.k or self.config.speculation_off_above or tokens + self.k > self.config.max_model_len:
            return False
        among_decodes = bool(self.continued) and not any(seat.chunking for seat in self.continued)
        return among_decodes or (hit_tokens > 0 and not self.continued)

    def _cap(self, n: int) -> int:
        threshold = self.config.long_prefill_token_threshold
        return min(n, threshold) if threshold > 0 and self.crowded else n

    def _count(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.config.block_size)

    def _allocate(self, seat: Seat, n: int) -> bool:
        """Makes room for n tokens more and publishes the blocks they fill; False if there is too little."""
        new = self._count(min(seat.computed + n + self.ahead, self.config.max_model_len)) - len(seat.table)
        if new > self.free_blocks:
            return False
        seat.table += self.blocks.take(max(new, 0))
        self._publish(seat, seat.computed + n)
        return True

    def _publish(self, seat: Seat, tokens: int) -> None:
        """Full blocks of the first so many tokens, as far as their text is known, are found from now on."""
        if self.config.enable_prefix_caching:
            for block, hash_ in zip(seat.table, self._hashes(seat, tokens), strict=False):
                if block.hash is None:
                    self.blocks.publish(block, hash_)

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
                self.budget += entry[1] + self.row_price
                self.chosen.remove(entry)
                break
        self.running_seats.remove(seat)
        self._release(seat)
        seat.computed = seat.drafts = 0
        seat.chunking = seat.resumes = True
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
        prefill chunks, be they a single token long, or the newest token with drafts behind it."""
        prefill: list[tuple[int, int]] = []
        decodes: list[int] = []
        sampled = drafts = 0
        for seat, n in self.chosen:
            ends = self._samples(seat, n)
            sampled += ends + self._drafts_of(seat, n)
            drafts += self._drafts_of(seat, n)
            if ends and n == 1 and seat.length > len(seat.text) - seat.outputs:
                decodes.append(seat.computed)
            else:
                prefill.append((n, seat.computed))
        return StepShape(tuple(prefill), len(decodes), sum(decodes), max(decodes, default=0), sampled, drafts)

    # ------------------------------------------------------------------ update

    def update(
        self, plan: StepPlan, accepted: Mapping[int, int] | None = None, proposed: Mapping[int, int] | None = None
    ) -> list[Request]:
        """The right drafts and one token more for every row that samples and whose request is still here; returns those that
        ended."""
        finished = []
        for row in plan.scheduled:
            seat = self.seats.get(row.request.index)
            if seat is None or not row.samples:
                continue
            drafts = seat.flights.pop(0)
            right = 0 if row.padded else min((accepted or {}).get(row.request.index, 0), drafts)
            ended = False
            for _ in range(right + 1):
                seat.text.append((seat.own_key, seat.outputs))
                seat.outputs += 1
                ended = seat.outputs >= row.request.stops_after(self.config.max_model_len)
                if ended:
                    break
            if seat in self.running_seats:
                seat.computed -= drafts - right
                if self.config.async_scheduling:
                    self._publish(seat, len(seat.text) - 1)
                else:
                    seat.drafts = min((proposed or {}).get(row.request.index, 0), plan.propose)
            if ended:
                self._release(seat)
                (self.running_seats if seat in self.running_seats else self.waiting_seats).remove(seat)
                del self.seats[row.request.index]
                finished.append(row.request)
        return finished
