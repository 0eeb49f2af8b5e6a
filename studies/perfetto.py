"""A run as a trace for ui.perfetto.dev or chrome://tracing: what every replica computed when, and where every request was meanwhile.

The format is Chrome's Trace Event Format: a process a replica; in it a track of its steps, counters of requests and KV blocks, and
below them a lane for each request that is in the system at once, its slice divided into queue, prefill and decode, with every
chunk of its prompt in the step that computed it.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import InputError
from serving.request import Status
from studies.reports import files
from studies.results import Run

Event = dict[str, Any]

STEPS, FIRST_LANE = 1, 10
_STEP_ARGUMENTS = ("step", "prefill_tokens", "prefill_sequences", "decode_sequences", "decode_context", "kv_blocks")
_COUNTERS = {"requests": ("running", "waiting"), "KV blocks": ("kv_blocks",)}


def events(run: Run, start: float = 0.0, end: float | None = None) -> Iterator[Event]:
    """Trace events of what overlaps [start, end] seconds of the run, replica by replica; times in microseconds."""
    window = (round(start * 1e9), np.iinfo(np.int64).max if end is None else round(end * 1e9))
    names = _replica_names(run)
    for replica, name in enumerate(names):
        process = replica + 1
        yield _meta(process, 0, "process_name", name)
        yield {"ph": "M", "pid": process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": replica}}
        yield _meta(process, STEPS, "thread_name", "steps")
        yield from _steps(run, replica, process, window)
        yield from _requests(run, replica, process, window)


def write(run: Run, path: Path | str, start: float = 0.0, end: float | None = None) -> int:
    """Writes the trace, packed where the name ends in .gz; returns the number of events.

    Raises:
        InputError: nothing can be written there, or the run has nothing between start and end.
    """
    path = Path(path)
    files.check_file(path, "a trace is a file")
    if end is not None and end <= start:
        raise InputError(f"--end: found {end:g} s, but it must be after --start ({start:g} s)")
    found = list(events(run, start, end))
    if not any(event["ph"] == "X" for event in found):
        until = "the end" if end is None else f"{end:g} s"
        raise InputError(f"{run.name}: nothing happens between {start:g} s and {until}")
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in found)
    data = f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'.encode()
    with files.whole(path) as part:
        part.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return len(found)


def _replica_names(run: Run) -> list[str]:
    pools = run.info.get("pools")
    if pools:
        return [f"{pool['name']}, replica {k}" for pool in pools for k in range(pool["replicas"])]
    return [f"replica {k}" for k in range(int(run.info["replicas"]))]


def _steps(run: Run, replica: int, process: int, window: tuple[int, int]) -> Iterator[Event]:
    s = run.records.steps
    rows = np.flatnonzero((s["replica"] == replica) & (s["end_ns"] >= window[0]) & (s["start_ns"] <= window[1]))
    columns = {name: s[name][rows].tolist() for name in (*_STEP_ARGUMENTS, "start_ns", "end_ns", "running", "waiting")}
    last: dict[str, Any] = {}
    for i in range(len(rows)):
        prefill, decode = columns["prefill_tokens"][i], columns["decode_sequences"][i]
        name = "mixed" if prefill and decode else "prefill" if prefill else "decode"
        begin, finish = columns["start_ns"][i], columns["end_ns"][i]
        arguments = {key: columns[key][i] for key in _STEP_ARGUMENTS}
        yield _slice(process, STEPS, name, begin, finish, arguments)
        for counter, keys in _COUNTERS.items():
            values = {key: columns[key][i] for key in keys}
            if last.get(counter) != values:
                last[counter] = values
                yield {"ph": "C", "pid": process, "name": counter, "ts": begin / 1e3, "args": values}


def _requests(run: Run, replica: int, process: int, window: tuple[int, int]) -> Iterator[Event]:
    records = run.records
    r = records.requests
    over = np.where(r["status"] == Status.IN_FLIGHT, window[1], r["finish_ns"])
    here = (r["replica"] == replica) & (r["status"] >= 0) & (r["arrival_ns"] <= window[1]) & (over >= window[0])
    rows = np.flatnonzero(here)
    rows = rows[np.argsort(r["arrival_ns"][rows], kind="stable")]
    last = int(records.steps["end_ns"].max(initial=0))
    chunks = _chunks_of(run, replica)
    preempted = _preempted(run, replica)
    free: list[int] = []  # lanes
    busy: list[tuple[int, int]] = []  # when each is free again
    lanes = 0
    n = records.first_tries or len(r["status"])
    for i in rows.tolist():
        arrival, scheduled, first, finish = (
            int(r[f"{k}_ns"][i]) for k in ("arrival", "scheduled", "first_token", "finish")
        )
        finish = max(last, arrival) if r["status"][i] == Status.IN_FLIGHT else finish
        while busy and busy[0][0] <= arrival:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, lanes = lanes, lanes + 1
            yield _meta(process, FIRST_LANE + lane, "thread_name", f"requests {lane}")
        heapq.heappush(busy, (finish, lane))
        track = FIRST_LANE + lane
        attempt = f", try {i // n}" if i >= n else ""
        arguments = {k: int(r[k][i]) for k in ("prompt_tokens", "cached_tokens", "output_tokens", "preemptions")}
        arguments["status"] = Status(int(r["status"][i])).name.lower()
        yield _slice(process, track, f"request {i % n}{attempt}", arrival, finish, arguments)
        ends = finish if scheduled < 0 else scheduled
        if ends > arrival:
            yield _slice(process, track, "queue", arrival, ends)
        if scheduled >= 0:
            yield _slice(process, track, "prefill", scheduled, finish if first < 0 else first)
            for begin, end, tokens, context in chunks.get(i, ()):
                yield _slice(process, track, "chunk", begin, min(end, finish), {"tokens": tokens, "context": context})
        if first >= 0 and finish > first:
            yield _slice(process, track, "decode", first, finish)
        for at in preempted.get(i, ()):
            yield {"ph": "i", "s": "t", "pid": process, "tid": track, "name": "preempted", "ts": at / 1e3}


def _chunks_of(run: Run, replica: int) -> dict[int, list[tuple[int, int, int, int]]]:
    """Of each request its rows of more than one token: start, end (ns), tokens, context."""
    c, s = run.records.chunks, run.records.steps
    mine = c[(c[:, 0] == replica) & (c[:, 3] > 1)]
    rows = np.flatnonzero(s["replica"] == replica)
    start, end = s["start_ns"][rows], s["end_ns"][rows]
    found: dict[int, list[tuple[int, int, int, int]]] = {}
    for _, step, request, tokens, context, _ in mine.tolist():
        found.setdefault(request, []).append((int(start[step]), int(end[step]), tokens, context))
    return found


def _preempted(run: Run, replica: int) -> dict[int, list[int]]:
    """Of each request the times (ns) at which it was preempted."""
    s, found = run.records.steps, {}
    start = s["start_ns"][s["replica"] == replica]
    for k, step, request in run.records.preempted.tolist():
        if k == replica and step < len(start):
            found.setdefault(request, []).append(int(start[step]))
    return found


def _slice(process: int, track: int, name: str, begin: int, end: int, arguments: Event | None = None) -> Event:
    event = {"ph": "X", "pid": process, "tid": track, "name": name, "ts": begin / 1e3, "dur": (end - begin) / 1e3}
    return event if arguments is None else event | {"args": arguments}


def _meta(process: int, track: int, kind: str, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": {"name": name}}
