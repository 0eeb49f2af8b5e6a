"""What a run leaves behind: one row a request, one row an engine step. Columns of integers, no object per token.

Both drivers (simulated and executed) write these, so that a live run can be fitted, replayed and drawn.
Times are integer nanoseconds since the start of the run; -1 stands for "did not happen".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct, pack

import numpy as np
from numpy.typing import NDArray

from serving.host_memory import moved_blocks
from serving.plan import StepPlan, StepResult
from serving.request import Cause, Request, Status
from serving.row_log import CHUNK_COLUMNS, RowLog

Column = NDArray[np.int64]

REQUEST_COLUMNS = (
    "arrival_ns",  # when the client meant to send it
    "scheduled_ns",  # start of the first step that computed any of it
    "first_token_ns",
    "finish_ns",  # last token, or the moment of rejection, abort or time-out
    "prompt_tokens",
    "output_tokens",  # produced, not asked for
    "cached_tokens",  # found in the prefix cache at first admission
    "preemptions",
    "status",  # serving.request.Status
    "replica",
    "submitted",  # position in the order in which the engine saw the requests of its replica
    "ready_ns",  # when the front end handed it on, where that takes time; -1 for at once
    "rung",  # rungs of the degradation ladder that were in force for it
    "cause",  # serving.request.Cause: why it was refused or given up
)
LATER_REQUEST_COLUMNS = {"ready_ns": -1, "rung": 0, "cause": 0}
"""Columns that results of before they were there lack, and what they would hold."""

STEP_COLUMNS = (
    "replica",
    "step",
    "scheduled_ns",  # when the batch was decided
    "start_ns",
    "end_ns",
    "prefill_sequences",
    "prefill_tokens",
    "prefill_attention",  # sum of query x context, see StepShape.prefill_attention
    "decode_sequences",
    "decode_context",
    "decode_max_context",
    "sampled",
    "running",
    "waiting",
    "kv_blocks",  # blocks owned by requests while the step runs
    "verify_sequences",  # of the prefill sequences, those that verify drafts
    "draft_tokens",
    "accepted_tokens",
)
STEP_DRAFT_COLUMNS = STEP_COLUMNS[-3:]
MOVE_COLUMNS = ("swap_out_blocks", "swap_in_blocks", "offload_blocks", "fetch_blocks")
"""More columns of steps: KV blocks copied to the host and back before the step computed, by `serving.host_memory.MoveKind`; results
of before they were there lack them."""
DRAFT_COLUMNS = ("replica", "step", "request", "drafts", "accepted", "proposed")


# `Struct.pack` converts integers several times faster than `array.extend`.
_REASONS_KEPT = 20
_REQUEST_ROW = Struct(f"{len(REQUEST_COLUMNS)}q")


class RequestLog:
    """Rows of `n` requests, each written once, when the request ends."""

    def __init__(self, n: int) -> None:
        self.rows = bytearray(b"\xff") * (n * _REQUEST_ROW.size)  # all -1
        self.rejected: list[dict[str, object]] = []  # the first of them, with the reason

    def close(
        self,
        request: Request,
        status: Status,
        finish_ns: int,
        replica: int = 0,
        submitted: int = -1,
        cause: int = 0,
    ) -> None:
        """Writes the row of a request that has ended as `status`; cause: a `Cause`, where it was not served."""
        _REQUEST_ROW.pack_into(
            self.rows,
            request.index * _REQUEST_ROW.size,
            request.arrival_ns,
            request.first_scheduled_ns,
            request.first_token_ns,
            finish_ns,
            request.prompt_tokens,
            request.num_outputs,
            request.cached_tokens,
            request.preemptions,
            status,
            replica,
            submitted,
            request.tags.ready_ns,
            request.tags.rung,
            cause,
        )

    def reject(self, request: Request, reason: str, now: int, cause: Cause = Cause.NEVER_FITS) -> None:
        """Writes the row of a request that is refused; by default one that no empty engine could hold."""
        self.close(request, Status.REJECTED, now, cause=cause)
        if len(self.rejected) < _REASONS_KEPT:
            self.rejected.append({"request": request.index, "reason": reason})

    def arrays(self) -> dict[str, Column]:
        """Every column as int64 `(n,)`; rows of requests that were never submitted have status -1."""
        table = np.frombuffer(self.rows, dtype=np.int64).reshape(-1, len(REQUEST_COLUMNS))
        return {name: table[:, i].copy() for i, name in enumerate(REQUEST_COLUMNS)}


# One row a leap (n >= 1 steps of one shape but for the growing contexts).
_LEAP = (
    "step",
    "n",
    "scheduled_ns",
    "start_ns",
    "prefill_sequences",
    "prefill_tokens",
    "prefill_attention",
    "decode_sequences",
    "decode_context",
    "decode_max_context",
    "sampled",
    "running",
    "waiting",
    "alone",  # request whose whole prompt is the step's only chunk; -1 where there is none, or the row log says more
)
pack_leap = Struct(f"{len(_LEAP)}q").pack
_N = _LEAP.index("n") - len(_LEAP)
_STEP, _TOKENS, _ALONE = map(_LEAP.index, ("step", "prefill_tokens", "alone"))


class StepLog:
    """Steps of one replica, stored a leap a row and unfolded by `arrays()`.

    `leaps` holds rows of `_LEAP`; `end_ns` and `kv_blocks` one value a step; `visible`, `preempted`, `aborted` hold pairs
    (step, request index) in order: which requests the engine first saw before that step was decided, and so on.
    `drafted` holds, of each step with drafts, its number and STEP_DRAFT_COLUMNS; `drafts` the rest of DRAFT_COLUMNS of each row
    that gave tokens, if the engine `speculates`. `rows`: who had a row, as far as it does not follow.
    `restarts`: None if a leap's steps are decided when they start; else steps are decided when the one before them starts, but
    for those (by number) that found nothing in flight.

    Appending to a list is fast and to an array compact: new values go to lists, and `spill` moves them on now and then.
    """

    FRESH = 1 << 14  # steps to keep in lists

    def __init__(self, replica: int = 0, speculates: bool = False) -> None:
        self.replica = replica
        self.speculates = speculates
        self.restarts: list[int] | None = None
        self.leaps = array("q")
        self.end_ns: list[int] = []
        self.kv_blocks: list[int] = []
        self.visible: list[int] = []
        self.preempted: list[int] = []
        self.aborted: list[int] = []
        self.drafted = array("q")
        self.drafts = array("q")
        self.moved = array("q")  # of each step with moves, its number and MOVE_COLUMNS
        self.stranded = array("q")  # of each step with any, its number and free blocks outside the widest hole
        self.rows = RowLog(self.aborted, speculates)
        self.spilled = {name: array("q") for name in ("end_ns", "kv_blocks", "visible")}

    def add(
        self,
        plan: StepPlan,
        scheduled_ns: int,
        start_ns: int,
        end_ns: int,
        kv_blocks: int,
        result: StepResult | None = None,
    ) -> None:
        """Appends one step that was run singly; its `result` has not been applied yet."""
        s = plan.shape
        prefill = len(s.prefill), s.prefill_tokens, s.prefill_attention
        decode = s.decode_sequences, s.decode_context, s.decode_max_context
        counts = s.sampled, plan.running, plan.waiting, -1
        self.leaps.frombytes(pack_leap(plan.step, 1, scheduled_ns, start_ns, *prefill, *decode, *counts))
        self.end_ns.append(end_ns)
        self.kv_blocks.append(kv_blocks)
        for request in plan.preempted:
            self.preempted.extend((plan.step, request.index))
        self.rows.add(plan)
        if plan.stranded_blocks:
            self.stranded.extend((plan.step, plan.stranded_blocks))
        if plan.moves:
            self.moved.extend((plan.step, *moved_blocks(plan.moves)))
        if self.speculates and result is not None:
            self._add_drafts(plan, result)
        if len(self.end_ns) > self.FRESH:
            self.spill()

    def _add_drafts(self, plan: StepPlan, result: StepResult) -> None:
        accepted, proposed = result.accepted or {}, result.proposed or {}
        verifying = stood = 0
        for row in plan.scheduled:
            request = row.request
            verifying += row.drafts > 0
            if row.samples and request.status <= Status.PREEMPTED:  # else the row was wasted
                drafts = 0 if row.padded else row.drafts
                stand = min(accepted.get(request.index, 0), drafts)
                found = min(proposed.get(request.index, 0), plan.propose)
                self.drafts.extend((plan.step, request.index, drafts, stand, found))
                stood += stand
        if verifying:
            self.drafted.extend((plan.step, verifying, plan.shape.draft_tokens, stood))

    def prolong(self, n: int) -> None:
        """The last leap goes on for n steps more."""
        self.leaps[_N] += n

    def drop_steps(self, n: int) -> None:
        """Takes the last n steps back, all of which belong to the last leap."""
        del self.end_ns[-n:], self.kv_blocks[-n:]
        self.leaps[_N] -= n
        if not self.leaps[_N]:
            del self.leaps[-len(_LEAP) :]

    def spill(self, keep: int = 0) -> None:
        """Moves the values of steps to arrays, where they take a quarter of the memory, but for the last `keep` (even: pairs
        stay whole)."""
        for name, values in self.spilled.items():
            fresh = getattr(self, name)
            kept = fresh[len(fresh) - keep :] if len(fresh) > keep else fresh[:]
            del fresh[len(fresh) - len(kept) :]
            values.frombytes(pack(f"{len(fresh)}q", *fresh))
            fresh[:] = kept

    def arrays(self) -> dict[str, Column]:
        """STEP_COLUMNS and MOVE_COLUMNS as int64 `(steps,)`."""
        self.spill()
        table = np.frombuffer(self.leaps, dtype=np.int64).reshape(-1, len(_LEAP)).T.copy()
        leap = dict(zip(_LEAP, table, strict=True))
        n = leap["n"]
        total = int(n.sum())
        row = np.repeat(
            np.arange(len(n)), n
        )  # of each step; taking by it is many times faster than repeating each column
        inside = np.arange(total) - (np.cumsum(n) - n)[row]  # position of the step in its leap
        end = np.array(self.spilled["end_ns"], dtype=np.int64)
        columns = {name: leap[name].take(row) for name in _LEAP if name not in ("n", "alone")}
        columns["step"] += inside
        columns["decode_context"] += inside * columns["decode_sequences"]
        columns["decode_max_context"] += np.where(columns["decode_sequences"] > 0, inside, 0)
        later = inside > 0
        before = np.roll(end, 1)
        for name in ("scheduled_ns", "start_ns"):
            columns[name] = np.where(later, before, columns[name])
        if self.restarts is not None:
            start = columns["start_ns"]
            columns["scheduled_ns"] = np.roll(start, 1)
            restarts = [step for step in self.restarts if step < total]
            columns["scheduled_ns"][restarts] = start[restarts]
        columns["end_ns"] = end
        columns["kv_blocks"] = np.array(self.spilled["kv_blocks"], dtype=np.int64)
        columns["replica"] = np.full(total, self.replica, dtype=np.int64)
        for names, log in ((STEP_DRAFT_COLUMNS, self.drafted), (MOVE_COLUMNS, self.moved)):
            rows = np.array(log, dtype=np.int64).reshape(-1, 1 + len(names))
            for i, name in enumerate(names, 1):
                columns[name] = np.zeros(total, dtype=np.int64)
                columns[name][rows[:, 0]] = rows[:, i]  # a step's number is its row
        return {name: columns[name] for name in (*STEP_COLUMNS, *MOVE_COLUMNS)}

    def chunks(self) -> Column:
        """CHUNK_COLUMNS, int64 `(rows, 6)`."""
        leaps = np.frombuffer(self.leaps, dtype=np.int64).reshape(-1, len(_LEAP))
        alone = leaps[leaps[:, _ALONE] >= 0][:, [_STEP, _ALONE, _TOKENS]]
        return self.rows.table(self.replica, alone, int(leaps[:, _LEAP.index("n")].sum()))


@dataclass
class Records:
    """A finished run.

    requests, steps: columns as above, steps of all replicas one after another.
    visible, preempted, aborted: int64 `(events, 3)`: replica, step, request index, in the order in which they happened.
    chunks: int64 `(rows, 6)`, CHUNK_COLUMNS, replica by replica in the order of steps: every row but those of decodes that run
        along; `serving.rows` finds those. Empty in results of before it was written.
    drafts: int64 `(rows, 6)`, DRAFT_COLUMNS of each row that gave tokens, where the engine speculates; `drafts` without
        dummies, `proposed` for the next step. In the order of steps.
    info: how it was run (way, clock, seed, versions, ...), JSON-able.
    class_slo: limits in seconds of each class, `{ttft, tpot, e2e}`; None where those of the scenario hold.
    tenants, classes: names behind the codes; tenant, session, service_class: int64 `(n,)` per request, -1 for none.
    stranded: int64 `(steps, 3)`: replica, step, and the free blocks outside the widest hole where KV memory is contiguous and
        there were any. (Result folders keep what follows from it, not this.)
    judged_ns: when a judge had read the answer of each row, which its client does not see before; -1 where nobody did. None without
        a judge.
    first_tries: of the rows of requests, the first so many are first tries; those after them, as many again for each further
        try, are sent when the one before was given up (a retry) or its answer is not good enough (an escalation): row
        `i + k * first_tries` is try k of request i. None where there are only first tries.
    """

    requests: dict[str, Column]
    steps: dict[str, Column]
    visible: Column
    preempted: Column
    aborted: Column
    tenant: Column
    session: Column
    tenants: tuple[str, ...] = ()
    info: dict[str, object] = field(default_factory=dict)
    drafts: Column = field(default_factory=lambda: np.empty((0, len(DRAFT_COLUMNS)), dtype=np.int64))
    service_class: Column | None = None
    classes: tuple[str, ...] = ("default",)
    first_tries: int | None = None
    class_slo: tuple[Mapping[str, float | None] | None, ...] = ()
    chunks: Column = field(default_factory=lambda: np.empty((0, len(CHUNK_COLUMNS)), dtype=np.int64))
    judged_ns: Column | None = None
    stranded: Column = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))

    @property
    def submitted(self) -> NDArray[np.bool_]:
        """Rows of requests that a client really sent (a turn whose predecessor was rejected never is)."""
        return np.asarray(self.requests["status"] >= 0)

    @property
    def finished(self) -> NDArray[np.bool_]:
        return np.asarray(self.requests["status"] == Status.FINISHED)


def gather(
    requests: RequestLog,
    logs: Iterable[StepLog],
    tenant: Column,
    session: Column,
    tenants: tuple[str, ...],
    info: dict[str, object],
    service_class: Column | None = None,
    classes: tuple[str, ...] = ("default",),
    first_tries: int | None = None,
) -> Records:
    """Joins the logs of a run's replicas into its records."""
    logs = list(logs)
    parts = [log.arrays() for log in logs]
    steps = parts[0] if len(parts) == 1 else {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}

    def events(name: str, width: int = 2) -> Column:
        found = []
        for log in logs:
            rows = np.array(log.spilled.get(name, getattr(log, name)), dtype=np.int64).reshape(-1, width)
            found.append(np.column_stack([np.full(len(rows), log.replica, dtype=np.int64), rows]))
        return np.concatenate(found)

    leaps = sum(len(log.leaps) for log in logs) // len(_LEAP)
    info = {"replicas": len(logs), "leaps": leaps, "rejected": requests.rejected, **info}
    return Records(
        requests=requests.arrays(),
        steps=steps,
        visible=events("visible"),
        preempted=events("preempted"),
        aborted=events("aborted"),
        tenant=tenant,
        session=session,
        tenants=tenants,
        info=info,
        drafts=events("drafts", len(DRAFT_COLUMNS) - 1),
        service_class=service_class,
        classes=classes,
        first_tries=first_tries,
        chunks=np.concatenate([log.chunks() for log in logs]),
        stranded=events("stranded"),
    )
