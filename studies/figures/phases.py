"""In which phase a request was when: in its queue, computing its prompt, decoding, or set back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from serving.records import Records
from serving.row_log import CHUNK_COLUMNS

Ints = NDArray[np.int64]
Span = tuple[str, int, int]

QUEUE, PREFILL, DECODE, PREEMPTED = "queue", "prefill", "decode", "preempted"
PHASES = {
    QUEUE: "from its arrival to the first step that computes any of it",
    PREFILL: "its prompt is computed, or computed again after a preemption",
    DECODE: "one token after the other",
    PREEMPTED: "it has lost its blocks and waits for new ones",
}
"""The phases, and what they are."""


def phases(records: Records, requests: Sequence[int]) -> list[list[Span]]:
    """Spans `(phase, begin, end)` of each request in ns, in order of time: they touch, and reach from its arrival to its end.

    A request that was still in flight ends with the last step; one that was never sent, or was turned away at once, has none.
    After a preemption it waits until its next row, computes again until that gives a token, and decodes on. Where rows were not
    logged nobody knows when it was back: it waits until its first token, or counts as decoding if it had that already.
    """
    r, steps = records.requests, records.steps
    last = int(steps["end_ns"].max(initial=0))
    lost = _setbacks(records, requests)
    found: list[list[Span]] = []
    for i in requests:
        arrival, scheduled, first, finish = (
            int(r[name][i]) for name in ("arrival_ns", "scheduled_ns", "first_token_ns", "finish_ns")
        )
        if r["status"][i] < 0:
            found.append([])
            continue
        end = finish if finish >= 0 else max(last, arrival)
        changes = [(arrival, QUEUE)]
        changes += [(at, phase) for at, phase in ((scheduled, PREFILL), (first, DECODE)) if at >= 0]
        for begin, back, again in lost.get(i, ()):
            if back is None and begin >= first >= 0 and not len(records.chunks):
                continue
            changes = [change for change in changes if change[0] < begin]
            changes.append((begin, PREEMPTED))
            changes += [(at, phase) for at, phase in ((back, PREFILL), (again, DECODE)) if at is not None]
            if back is None and not len(records.chunks) and first >= 0:
                changes.append((first, DECODE))
        found.append(_spans(changes, end))
    return found


def _spans(changes: list[tuple[int, str]], end: int) -> list[Span]:
    """What lies between changes that are in order, without what takes no time; phases that go on are one."""
    spans: list[Span] = []
    for k, (begin, phase) in enumerate(changes):
        until = min(changes[k + 1][0], end) if k + 1 < len(changes) else end
        if until <= begin:
            continue
        if spans and spans[-1][0] == phase:
            begin = spans.pop()[1]
        spans.append((phase, begin, until))
    return spans


def _setbacks(records: Records, requests: Sequence[int]) -> dict[int, list[tuple[int, int | None, int | None]]]:
    """By request, in order: when it was preempted, when its next row began, and when that had given a token again; None for never."""
    events, steps, prompt = records.preempted, records.steps, records.requests["prompt_tokens"]
    mine = events[np.isin(events[:, 2], np.asarray(requests, dtype=np.int64))] if len(events) else events
    found: dict[int, list[tuple[int, int | None, int | None]]] = {}
    logged: dict[int, dict[int, list[tuple[int, ...]]]] = {}
    for replica, number, request in mine.tolist():
        offset = int(np.searchsorted(steps["replica"], replica))
        if replica not in logged:
            there = mine[:, 0] == replica
            logged[replica] = _rows(records, replica, int(mine[there, 1].min()), mine[there, 2])
        back = again = None
        for step, tokens, context, samples in logged[replica].get(request, ()):
            if step < number:
                continue
            begin, end = (int(steps[name][offset + step]) for name in ("start_ns", "end_ns"))
            back = begin if back is None else back
            if samples:
                one = tokens == 1 or steps["verify_sequences"][offset + step]
                again = (
                    begin if one and context >= prompt[request] else end
                )  # a decode, or the last of what is recomputed
            if again is not None:
                break
        found.setdefault(request, []).append((int(steps["start_ns"][offset + number]), back, again))
    return found


def _rows(records: Records, replica: int, since: int, requests: Ints) -> dict[int, list[tuple[int, ...]]]:
    """Logged rows with tokens on a replica from a step on, by request: `step, tokens, context, samples`."""
    table = dict(zip(CHUNK_COLUMNS, records.chunks.T, strict=True))
    lo, hi = np.searchsorted(table["replica"], (replica, replica + 1))
    lo += np.searchsorted(table["step"][lo:hi], since)
    at = lo + np.flatnonzero((table["tokens"][lo:hi] > 0) & np.isin(table["request"][lo:hi], requests))
    columns = (table[name][at].tolist() for name in ("request", "step", "tokens", "context", "samples"))
    rows: dict[int, list[tuple[int, ...]]] = {}
    for request, *row in zip(*columns, strict=True):
        rows.setdefault(request, []).append(tuple(row))
    return rows
