"""A recorded run decided again, step by step: the schedule layer of every validation (law 8).

The recording says how long each step took, which requests the engine had seen before it, and which drafts were found and stood;
everything else - who is scheduled, admitted, preempted, when each token came - must follow from the scheduler alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.degradation import Rung, effects
from serving.host_memory import moved_blocks
from serving.plan import StepPlan, StepResult
from serving.records import MOVE_COLUMNS, Column, Records
from serving.request import Request, Status
from serving.routing import Routing
from serving.scheduler import Scheduler
from sim.cluster import run_pools_on_executors
from sim.escalation import Escalation
from sim.front import NOTHING, Front, cut_answers, degrade, requote
from sim.pool import Pool
from sim.step_events import END_OF_TIME

GIVEN_UP = (Status.REJECTED, Status.TIMED_OUT, Status.ABORTED)


@dataclass(frozen=True)
class ReplayReport:
    """identical: every step and every request came out as recorded. steps: how many were decided again.
    first_difference: where it first did not, in words."""

    identical: bool
    steps: int
    first_difference: str | None = None


class RecordedResults:
    """An executor of one replica whose steps come out as they did in a recorded run. Empty steps never come here.

    cut: a horizon ended the run, so that the step that was in flight then was not recorded: it outlasts everything.
    """

    def __init__(self, records: Records, number: int, cut: bool = False) -> None:
        self.cut = cut
        steps = records.steps
        busy = steps["prefill_tokens"] + steps["decode_sequences"] > 0
        durations = steps["end_ns"] - steps["start_ns"]
        self.durations: Iterator[int] = iter(durations[busy & (steps["replica"] == number)].tolist())
        self.drafts = _Drafts(records, number)
        self.plans: deque[StepPlan] = deque()

    def submit(self, plan: StepPlan) -> None:
        self.plans.append(plan)

    def collect(self) -> StepResult:
        plan = self.plans.popleft()
        duration = next(self.durations, None)
        if duration is None:
            if self.cut:
                return StepResult(END_OF_TIME)
            raise LookupError("more steps are needed than were recorded")
        return self.drafts.result(plan.step, duration)


class _Drafts:
    """Which drafts stood and were found, by step."""

    def __init__(self, records: Records, number: int) -> None:
        self.rows: dict[int, list[tuple[int, int, int]]] = {}
        for replica, step, request, _, accepted, proposed in records.drafts.tolist():
            if replica == number:
                self.rows.setdefault(step, []).append((request, accepted, proposed))

    def result(self, step: int, duration_ns: int) -> StepResult:
        rows = self.rows.get(step, ())
        return StepResult(duration_ns, None, {i: n for i, n, _ in rows}, {i: n for i, _, n in rows})


def replay(
    records: Records,
    workload: Workload,
    engine: EngineConfig | Sequence[Pool],
    *,
    router: str | Routing | None = None,
    seed: int = 0,
    escalation: Escalation | None = None,
    front: Front = NOTHING,
    horizon_ns: int | None = None,
) -> ReplayReport:
    """Decides a recorded run again and compares every step and every request with the recording.

    engine: of the only pool, or all pools. seed: of the router's draws. escalation: what a judge said of answers. front: what stood
        before the replicas. router: of a run that was not in real time: the workload is then also sent again (`rerun`), if the run
        was complete, or its horizon is known. horizon_ns: the end of the run; None if it ran until nothing was left to do.
    """
    steps = 0
    pools = pools_of(records, engine)
    homes = [pool.engine for pool in pools for _ in range(pool.replicas)]
    for number in np.unique(records.steps["replica"]).tolist():
        mine = records.steps["replica"] == number
        recorded = {name: column[mine] for name, column in records.steps.items()}
        difference = _ReplayedReplica(records, workload, homes[number], number, front.rungs).run(recorded)
        steps += int(mine.sum())
        if difference is not None:
            return ReplayReport(False, steps, f"replica {number}, {difference}" if number else difference)
    if router is not None and (horizon_ns is not None or not (records.requests["status"] == Status.IN_FLIGHT).any()):
        try:
            again = rerun(
                records,
                workload,
                pools,
                router=router,
                seed=seed,
                escalation=escalation,
                front=front,
                horizon_ns=horizon_ns,
            )
        except LookupError as error:
            return ReplayReport(False, steps, f"sent again: {error}")
        for kind, recorded, now in (
            ("requests", records.requests, again.requests),
            ("steps", records.steps, again.steps),
            ("drafts", {"rows": records.drafts}, {"rows": again.drafts}),
            # (Results of before rows were logged have none.)
            ("rows", {"chunks": records.chunks}, {"chunks": again.chunks if len(records.chunks) else records.chunks}),
        ):
            for name, column in recorded.items():
                if not np.array_equal(now[name], column):
                    return ReplayReport(False, steps, f"sent again: {kind}: {name} differs from the recording")
    return ReplayReport(True, steps)


def pools_of(records: Records, engine: EngineConfig | Sequence[Pool]) -> Sequence[Pool]:
    """The pools of a recorded run. engine: of the only one, or all."""
    if isinstance(engine, EngineConfig):
        return [Pool(engine, replicas=int(str(records.info["replicas"])))]
    return engine


def rerun(
    records: Records,
    workload: Workload,
    engine: EngineConfig | Sequence[Pool],
    *,
    router: str | Routing = "round_robin",
    seed: int = 0,
    escalation: Escalation | None = None,
    front: Front = NOTHING,
    horizon_ns: int | None = None,
) -> Records:
    """Sends the workload again, to replicas whose steps take as long as recorded. Beyond `replay`, arrivals, routing and
    clients' reactions are decided again too, so a run on the simulated or the device's clock comes out equal to the last bit;
    one in real time does not, since its arrivals waited for a step's end to be seen.

    Raises:
        LookupError: more steps are needed than were recorded.
    """
    pools = pools_of(records, engine)
    cut = horizon_ns is not None
    executors = [RecordedResults(records, number, cut) for number in range(sum(pool.replicas for pool in pools))]
    return run_pools_on_executors(
        pools,
        workload,
        executors,
        router=router,
        horizon_ns=horizon_ns,
        seed=seed,
        escalation=escalation,
        front=front,
    )


class _ReplayedReplica:
    def __init__(
        self, records: Records, workload: Workload, engine: EngineConfig, number: int, rungs: Sequence[Rung]
    ) -> None:
        self.records = records
        self.rungs = rungs
        self.cut_answers = cut_answers(records, workload) if rungs else {}
        self.workload = workload
        self.usable = engine.usable_blocks
        self.asynchronous = engine.async_scheduling
        self.scheduler = Scheduler(engine)
        self.visible = _by_step(records.visible, number)
        self.aborted = _by_step(records.aborted, number)
        self.preempted = _by_step(records.preempted, number)
        self.drafts = _Drafts(records, number)
        self.in_flight: deque[tuple[StepPlan, int]] = deque()  # with the end of the step
        self.requests: dict[int, Request] = {}

    def run(self, recorded: dict[str, Column]) -> str | None:
        columns = {name: column.tolist() for name, column in recorded.items()}
        for row, step in enumerate(columns["step"]):
            # A step that had ended when this one was decided had been applied by then.
            if (difference := self._end(until=columns["scheduled_ns"][row])) is not None:
                return difference
            self._arrive(step)
            plan = self.scheduler.schedule(columns["scheduled_ns"][row])
            self.in_flight.append((plan, columns["end_ns"][row]))
            for name, value in self._described(plan).items():
                if value != columns[name][row]:
                    return f"step {step}: {name} recorded {columns[name][row]}, decided {value}"
            victims = [request.index for request in plan.preempted]
            if victims != self.preempted.get(step, []):
                return f"step {step}: preempted recorded {self.preempted.get(step, [])}, decided {victims}"
            plan.started(columns["start_ns"][row])
        if self.asynchronous and columns["step"]:
            # If the run was cut, the next step had been decided, and may have preempted those whose tokens now come.
            if (difference := self._end(until=columns["start_ns"][-1])) is not None:
                return difference
            self._arrive(columns["step"][-1] + 1)
            if self.scheduler.has_work:
                self.scheduler.schedule(columns["start_ns"][-1])
        if (difference := self._end(until=None)) is not None:
            return difference
        left = [i for i, r in self.requests.items() if r.status is Status.RUNNING or r.status is Status.WAITING]
        ended = [i for i in left if self.records.requests["status"][i] == Status.FINISHED]
        return f"request {ended[0]}: recorded as finished, still unfinished here" if ended else None

    def _end(self, until: int | None) -> str | None:
        """Applies the steps that had ended by then, None for all; the first request that ended otherwise than recorded."""
        while self.in_flight and (until is None or self.in_flight[0][1] <= until):
            plan, end = self.in_flight.popleft()
            plan.ended(end)
            result = self.drafts.result(plan.step, 0)
            for request in self.scheduler.update(plan, result.accepted, result.proposed):
                if (difference := self._compare(request, end)) is not None:
                    return difference
        return None

    def _arrive(self, step: int) -> None:
        for i in self.visible.get(step, ()):
            request = self.workload.request(i, int(self.records.requests["arrival_ns"][i]))
            if self.cut_answers:
                requote(request, self.cut_answers, self.workload)
            level = int(self.records.requests["rung"][i])
            if level:
                degrade(request, self.workload, effects(self.rungs, level), level)
            self.requests[i] = request
            self.scheduler.add(request)
        for i in self.aborted.get(step, ()):
            if i in self.requests:  # else it left before any step was decided with it, and the run ended
                self.scheduler.abort(self.requests[i])

    def _described(self, plan: StepPlan) -> dict[str, int]:
        shape = plan.shape
        return {
            "step": plan.step,
            "prefill_sequences": len(shape.prefill),
            "prefill_tokens": shape.prefill_tokens,
            "prefill_attention": shape.prefill_attention,
            "decode_sequences": shape.decode_sequences,
            "decode_context": shape.decode_context,
            "decode_max_context": shape.decode_max_context,
            "sampled": shape.sampled,
            "verify_sequences": sum(row.drafts > 0 for row in plan.scheduled),
            "draft_tokens": shape.draft_tokens,
            "running": plan.running,
            "waiting": plan.waiting,
            "kv_blocks": self.usable - plan.free_blocks,
            **dict(zip(MOVE_COLUMNS, moved_blocks(plan.moves), strict=True)),
        }

    def _compare(self, request: Request, end_ns: int) -> str | None:
        if self.records.requests["status"][request.index] in GIVEN_UP:  # before its answer was complete
            return None
        found = {
            "status": int(request.status),
            "scheduled_ns": request.first_scheduled_ns,
            "first_token_ns": request.first_token_ns,
            "finish_ns": end_ns,
            "output_tokens": request.num_outputs,
            "cached_tokens": request.cached_tokens,
            "preemptions": request.preemptions,
        }
        for name, value in found.items():
            recorded = int(self.records.requests[name][request.index])
            if recorded != value:
                return f"request {request.index}: {name} recorded {recorded}, replayed {value}"
        return None


def _by_step(events: Column, number: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for replica, step, request in events.tolist():
        if replica == number:
            found.setdefault(step, []).append(request)
    return found
