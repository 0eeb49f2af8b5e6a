"""One engine replica on a simulated clock: the scheduler decides, an executor says how long it took.

A replica is passive: whoever wants to look at it first calls `advance(now)`. Ties follow one rule: at one instant arrivals come
first, then step ends, then what clients do about them, then step starts. So `advance(now)` finishes only steps that end
*before* now, and a step starts at t only once the clock has passed t.

Under asynchronous scheduling a step is decided when the one before it starts, and its own start waits for that one's end: who
arrives during step N is first seen when N + 1 starts, and runs in N + 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from serving.admission import Load
from serving.fast_scheduler import FastScheduler
from serving.plan import Executor, StepPlan, StepResult
from serving.records import RequestLog, StepLog
from serving.request import Cause, Request, Status
from serving.scheduler import Scheduler
from sim.acceptance import Acceptance
from sim.cost import CostModel
from sim.drafting import Drafting
from sim.host_link import HostLink

EMPTY_STEPS_ALLOWED = 2
"""A step that only preempts is empty, and so is one decided while the last tokens of all that runs are in flight; an engine that
can progress has no two of a kind in a row."""


class AnyReplica(Protocol):
    """What the cluster drives."""

    number: int
    pool: int
    outstanding: int
    ends: int | None

    def submit(self, request: Request, now: int) -> None: ...

    def advance(self, now: int) -> None: ...

    def begin(self, bound: int) -> None: ...

    def complete(self) -> None: ...

    def cut(self, now: int) -> bool: ...

    def abort(self, request: Request, now: int, status: Status, cause: Cause) -> None: ...

    def load(self, now: int) -> Load: ...

    def close_open(self, now: int) -> None: ...

    @property
    def has_work(self) -> bool: ...

    @property
    def ends_quietly(self) -> bool:
        """Whether it is known that nobody's answer is complete when the steps in flight end, and that there are steps after them."""


class CostExecutor:
    """An executor that asks a cost model for durations.

    Args:
        acceptance: which drafts stand and how many are found, where the engine speculates.
        drafting: what proposing costs, None where it costs nothing.
        link: to the host's memory, where KV blocks are copied there and back.
    """

    def __init__(
        self,
        cost: CostModel,
        acceptance: Acceptance | None = None,
        drafting: Drafting | None = None,
        link: HostLink | None = None,
    ) -> None:
        self.cost = cost
        self.acceptance = acceptance
        self.drafting = drafting
        self.link = link
        self.plans: deque[StepPlan] = deque()

    def submit(self, plan: StepPlan) -> None:
        self.plans.append(plan)

    def collect(self) -> StepResult:
        plan = self.plans.popleft()
        duration = self.cost.step_ns(plan.shape)
        if plan.moves and self.link is not None:
            out = sum(move.out for move in plan.moves)
            duration += self.link.ns(out, len(plan.moves) - out)
        if self.acceptance is None:
            return StepResult(duration)
        if self.drafting is not None and plan.propose:
            duration += self.drafting.ns(plan.shape)
        accepted, proposed = {}, {}
        for row in plan.scheduled:
            if row.samples:
                request, index = row.request, row.request.index
                stand = 0 if row.padded else self.acceptance.accepted(request, row.drafts)
                accepted[index] = stand
                if plan.propose:
                    proposed[index] = self.acceptance.proposed(request, request.num_outputs + stand + 1)
        return StepResult(duration, None, accepted, proposed)


class _Decided(NamedTuple):
    """A step and when it was decided."""

    plan: StepPlan
    at: int


class Replica:
    """Any scheduler setting, any executor, one step at a time.

    pool: number of its pool. ends: when the step in flight ends, None when the device is idle. free_from: earliest start of the
    next step.
    on_finish: called with every request that is finished here, at the time of its end.
    leaving: requests that were aborted and that the engine has not let go yet.
    """

    def __init__(
        self,
        number: int,
        scheduler: Scheduler,
        executor: Executor,
        requests: RequestLog,
        steps: StepLog,
        on_finish: Callable[[Request, int], None] | None = None,
    ) -> None:
        self.number = number
        self.pool = 0
        self.scheduler = scheduler
        self.executor = executor
        self.requests = requests
        self.steps = steps
        self.on_finish = on_finish
        self.outstanding = 0
        self.free_from = 0
        self.ends: int | None = None
        self.running: tuple[_Decided, StepResult] | None = None
        self.next: _Decided | None = None
        self.arrived: list[Request] = []
        self.open: dict[int, tuple[Request, int]] = {}  # index -> request, position in order of submission
        self.submitted = 0
        self.empty_steps = 0
        self.leaving: dict[Request, None] = {}

    @property
    def has_work(self) -> bool:
        return self.scheduler.has_work or self.next is not None

    @property
    def ends_quietly(self) -> bool:
        return False

    def submit(self, request: Request, now: int) -> None:
        """Hands over a request at `now`; the caller has called `advance(now)`."""
        if self.ends is None and not self.has_work:
            self.free_from = max(self.free_from, now)
        self.scheduler.add(request)
        self.arrived.append(request)
        self.open[request.index] = (request, self.submitted)
        self.submitted += 1
        self.outstanding += 1

    def advance(self, now: int) -> None:
        """Runs everything that ends, and then everything that starts, before `now`."""
        while True:
            if self.ends is not None:
                if self.ends >= now:
                    return
                self.complete()
            elif not self.has_work or self.free_from >= now:
                return
            else:
                self.begin(now)

    def cut(self, now: int) -> bool:
        """Shortens a leap to the step that runs at `now`; True if it ends earlier by that. Single steps never do."""
        return False

    def begin(self, bound: int) -> None:
        """Starts the next step at `free_from`, deciding it if need be, and the one after it where scheduling is asynchronous.
        (`bound` concerns leaps only.)"""
        start = self.free_from
        if self.leaving:
            let_go(self.leaving, self.scheduler, self.steps)
            if not self.has_work:
                return
        decided = self.next or self._decide(start)
        self.next = None
        if self.scheduler.config.async_scheduling and self.scheduler.has_work:
            self.next = self._decide(start)
        plan, result = decided.plan, StepResult(0)
        plan.started(start)
        if plan.scheduled:
            result = self.executor.collect()
            self.empty_steps = 0
        else:
            self.empty_steps += 1
            if self.empty_steps > EMPTY_STEPS_ALLOWED:
                raise RuntimeError(f"the scheduler has work but schedules nothing (step {plan.step})")
        self.running = decided, result
        self.ends = start + result.duration_ns

    def _decide(self, now: int) -> _Decided:
        for request in self.arrived:
            self.steps.visible.extend((self.scheduler.step, request.index))
        self.arrived.clear()
        plan = self.scheduler.schedule(now)
        if plan.scheduled:
            self.executor.submit(plan)
        return _Decided(plan, now)

    def complete(self) -> None:
        """Ends the step in flight: its tokens are out, and those who have all theirs leave."""
        running, end = self.running, self.ends
        assert running is not None
        assert end is not None
        (plan, at), result = running
        blocks = self.scheduler.config.usable_blocks - plan.free_blocks
        self.steps.add(plan, at, self.free_from, end, blocks, result)
        plan.ended(end)
        self.running, self.ends, self.free_from = None, None, end
        for request in self.scheduler.update(plan, result.accepted, result.proposed):
            if request in self.leaving:  # its answer is complete, but its client has left
                del self.leaving[request]
                continue
            self._close(request, Status.FINISHED, end)
            if self.on_finish is not None:
                self.on_finish(request, end)

    def abort(self, request: Request, now: int, status: Status, cause: Cause) -> None:
        """Its client has left, or it is sent away: its row is closed with the tokens that are out, and the engine lets it go when
        it decides its next step. The caller has called `advance(now)`, and `cut(now)` if leaps may go on beyond."""
        self._close(request, status, now, cause)
        self.leaving[request] = None

    def load(self, now: int) -> Load:
        """What there is to do; the caller has called `advance(now)`."""
        scheduler = self.scheduler
        config = scheduler.config
        in_use = config.usable_blocks - scheduler.free_blocks
        waiting = staying(scheduler.waiting, self.leaving)
        return Load(waiting, len(scheduler.running), config.max_num_seqs, in_use / config.usable_blocks)

    def cached_tokens(self, request: Request) -> int:
        """Tokens of the prompt that the prefix cache holds, of a request that is nowhere yet."""
        pool = self.scheduler.pool
        known = getattr(request, "text", None)  # hashes serve all replicas whose blocks are as large
        if known is None or known.block_size != pool.block_size:
            request.text = None
        return len(pool.find_prefix(request)) * pool.block_size

    def close_open(self, now: int) -> None:
        """Writes the rows of requests that the end of the run finds unfinished."""
        for request, _ in list(self.open.values()):
            self._close(request, Status.IN_FLIGHT, now)

    def _close(self, request: Request, status: Status, now: int, cause: Cause = Cause.NONE) -> None:
        _, submitted = self.open.pop(request.index)
        self.outstanding -= 1
        finish = now if status is not Status.IN_FLIGHT else -1
        self.requests.close(request, status, finish, self.number, submitted, cause)


def let_go(leaving: dict[Request, None], scheduler: Scheduler | FastScheduler, steps: StepLog) -> None:
    """The engine sees who has left, before it decides its next step."""
    for request in leaving:
        if scheduler.abort(request):
            steps.aborted += (scheduler.step, request.index)
    leaving.clear()


def staying(waiting: Sequence[Request], leaving: dict[Request, None]) -> Sequence[Request]:
    """Those who wait, without those who have left."""
    return [request for request in waiting if request not in leaving] if leaving else waiting
