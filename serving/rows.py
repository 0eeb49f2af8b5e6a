"""Who was in which step of a run: rows as they were logged, and the stretches of decodes that follow from them.

A request whose prompt is complete has one row, of one token, in every step of its replica that has decodes, until it ends, is
preempted or is aborted; `serving.row_log` wrote down everything else. So a run of a million steps is a few numbers a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.records import Records
from serving.request import Status
from serving.row_log import CHUNK_COLUMNS

Column = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Every row of a run. Steps are rows of the step table (`Records.steps`), replicas one after another.

    chunks: columns of the logged rows, in the order of steps: `step, request, tokens, context, samples`, and `decodes`: 1 where
        the row counts among the step's decodes.
    stretches: columns, by request and then time: `request, first, last, steps, context`: it decodes in every step from first to
        last that has decodes, `steps` of them, behind `context` tokens in the first and one more in each.
    decoded: int64 `(steps + 1,)`, steps with decodes before each step.
    """

    chunks: Mapping[str, Column]
    stretches: Mapping[str, Column]
    decoded: Column

    def of_step(self, step: int) -> Column:
        """Everybody who had a row in a step, `(rows, 3)`: request, tokens, context; by request."""
        c, s = self.chunks, self.stretches
        lo, hi = np.searchsorted(c["step"], (step, step + 1))
        found = [np.column_stack([c[name][lo:hi] for name in ("request", "tokens", "context")])]
        if self.decoded[step + 1] > self.decoded[step]:
            there = (s["first"] <= step) & (step <= s["last"])
            context = s["context"][there] + self.decoded[step] - self.decoded[s["first"][there]]
            found.append(np.column_stack([s["request"][there], np.ones(len(context), np.int64), context]))
        rows = np.concatenate(found)
        return rows[np.argsort(rows[:, 0], kind="stable")]

    def of_request(self, request: int) -> Column:
        """Every row of a request, `(rows, 3)`: step, tokens, context; by step."""
        c, s = self.chunks, self.stretches
        mine = c["request"] == request
        found = [np.column_stack([c[name][mine] for name in ("step", "tokens", "context")])]
        for k in np.flatnonzero(s["request"] == request).tolist():
            inside = np.arange(s["first"][k], s["last"][k] + 1)
            steps = inside[np.diff(self.decoded[inside[0] : inside[-1] + 2]) > 0]
            contexts = s["context"][k] + np.arange(len(steps))
            found.append(np.column_stack([steps, np.ones(len(steps), np.int64), contexts]))
        rows = np.concatenate(found)
        return rows[np.argsort(rows[:, 0], kind="stable")]


def rows_of(records: Records) -> Rows | None:
    """The rows of a run; None of one whose rows were not logged (results of before they were, logs of other engines)."""
    steps = records.steps
    if not _logged(records):
        return None
    decoded = np.concatenate([[0], np.cumsum(steps["decode_sequences"] > 0)])
    offset, ends = _replicas(steps["replica"])
    table = dict(zip(CHUNK_COLUMNS, records.chunks.T, strict=True))
    first = offset[table["replica"]]
    stretches = _stretches(records, table, first + table["step"], decoded, offset, ends)
    there = table["tokens"] > 0
    chunks = {name: table[name][there] for name in ("request", "tokens", "context", "samples")}
    chunks["step"] = (first + table["step"])[there]
    prompt = records.requests["prompt_tokens"][chunks["request"]]
    decodes = (chunks["tokens"] == 1) & (chunks["samples"] > 0) & (chunks["context"] >= prompt)
    chunks["decodes"] = decodes.astype(np.int64)
    return Rows(chunks, stretches, decoded)


def _logged(records: Records) -> bool:
    """Whether the log holds every prompt chunk that the steps count."""
    steps, table = records.steps, dict(zip(CHUNK_COLUMNS, records.chunks.T, strict=True))
    whole = table["tokens"] > 0
    return (
        bool(len(records.chunks) or not steps["prefill_sequences"].any())
        and table["tokens"][whole].sum() >= steps["prefill_tokens"].sum()
    )


def _replicas(replica: Column) -> tuple[Column, Column]:
    """First row of each replica in the step table, and one behind its last, by number."""
    numbers = np.arange(int(replica.max(initial=-1)) + 1)
    return np.searchsorted(replica, numbers), np.searchsorted(replica, numbers, side="right")


def _stretches(
    records: Records, table: Mapping[str, Column], at: Column, decoded: Column, offset: Column, ends: Column
) -> dict[str, Column]:
    """The stretches behind rows `at` of the step table that begin or go on with decodes."""
    r, total = records.requests, len(decoded)
    order = np.lexsort((at, table["request"]))
    opens = ((table["samples"] > 0) | (table["tokens"] == 0))[order]
    request, row, replica = table["request"][order], at[order], table["replica"][order]
    context = (table["context"] + table["tokens"])[order]
    # Until its next logged row ...
    following = np.append(row[1:], total)
    same = np.append((request[1:] == request[:-1]) & (replica[1:] == replica[:-1]), False)
    until = np.where(same, following, ends[replica])
    # ... or it is preempted or aborted (by key: request, then row) ...
    closings = np.concatenate([records.preempted, records.aborted])
    closings = closings[closings[:, 0] < len(ends)]
    keys = np.sort(closings[:, 2] * (total + 1) + offset[closings[:, 0]] + closings[:, 1])
    next_key = np.searchsorted(keys, request * (total + 1) + row, side="right")
    found = np.append(keys, -1)[next_key]
    closed = (found >= 0) & (found // (total + 1) == request)
    until = np.where(closed, np.minimum(until, found % (total + 1)), until)
    # ... or the step that gave its last token. (Of one whose client left the record ends before its rows do.)
    let_go = np.isin(r["status"], (Status.ABORTED, Status.TIMED_OUT))
    let_go[records.aborted[:, 2]] = False
    ended = (r["status"] == Status.FINISHED) | let_go
    for number, (lo, hi) in enumerate(zip(offset.tolist(), ends.tolist(), strict=True)):
        mine = (replica == number) & ended[request] & (r["replica"][request] == number)
        last = lo + np.searchsorted(records.steps["end_ns"][lo:hi], r["finish_ns"][request[mine]])
        until[mine] = np.minimum(until[mine], last + 1)
    steps = decoded[np.minimum(until, total - 1)] - decoded[np.minimum(row + 1, total - 1)]
    kept = opens & (steps > 0)
    return {
        "request": request[kept],
        "first": row[kept] + 1,
        "last": until[kept] - 1,
        "steps": steps[kept],
        "context": context[kept],
    }
