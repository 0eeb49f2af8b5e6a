"""Replaying recorded traces: which reader a file needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from scenarios.documents import read_text
from scenarios.errors import InputError
from scenarios.history import EXACT
from scenarios.recorded import RecordedTrace
from scenarios.recorded_sessions import SessionTrace
from scenarios.trace_burstgpt import BURSTGPT, read_burstgpt
from scenarios.trace_csv import AZURE, read_azure, read_csv
from scenarios.trace_mooncake import read_mooncake
from scenarios.trace_options import TraceOptions
from scenarios.trace_sessions import read_sessions
from scenarios.trace_weka import read_weka

READERS: dict[str, Callable[[str, Path, TraceOptions], RecordedTrace | SessionTrace]] = {
    "azure": read_azure,
    "burstgpt": read_burstgpt,
    "mooncake": read_mooncake,
    "csv": read_csv,
    "sessions": read_sessions,
    "weka": read_weka,
}


_Key = tuple[TraceOptions, int, int, int]
_last: dict[_Key, RecordedTrace] = {}
"""The table that was read last: a sweep replays one trace in every cell, and reading it can take as long as simulating it."""


def read(options: TraceOptions) -> RecordedTrace | SessionTrace:
    """The trace that the options name, plain or gzip.

    Raises:
        InputError: names file, line, what was found and what is allowed.
    """
    if options.path is None:
        raise InputError("workload.trace.path: is required and missing")
    path = Path(options.path)
    key = _key(options, path)
    found = _last.get(key) if key is not None else None
    if found is None:
        fresh = _read(options, path)
        if key is None or not isinstance(fresh, RecordedTrace):
            return fresh
        _last.clear()
        found = _last[key] = fresh
    return found.take(np.arange(len(found)))  # a copy, which its reader may change


def _key(options: TraceOptions, path: Path) -> _Key | None:
    """What is different where a file would be read differently; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    # What is done with a trace after it is read.
    of_reader = options.model_copy(update={"limit": None, "speedup": 1.0, "length_scale": 1.0})
    return of_reader, state.st_ino, state.st_size, state.st_mtime_ns


def _read(options: TraceOptions, path: Path) -> RecordedTrace | SessionTrace:
    text = read_text(path)
    if not text.strip():
        raise InputError(
            f"{path}: the trace is empty; allowed: a CSV with a header (Azure's, BurstGPT's or any), or JSONL (Mooncake's, sessions, WEKA's)"
        )
    if not text.split("\n", 1)[0].strip():
        raise InputError(f"{path}: line 1: is blank, but a header or a JSON object is needed")
    form = _recognise(text) if options.format == "auto" else options.format
    if options.history != EXACT and form != "sessions":
        raise InputError(
            f"{path}: workload.trace.history: found {options.history.kind}, but a trace of format {form} does not say which text was "
            "an answer; leave it out, or replay a trace of sessions"
        )
    return READERS[form](text, path, options)


def _recognise(text: str) -> str:
    """A reader's name for a text, from its first line."""
    first = text.split("\n", 1)[0].strip()
    if first.startswith("{"):
        try:
            row = json.loads(first)
        except (ValueError, RecursionError):
            return "mooncake"  # which says what is wrong with the line
        if "requests" in row:
            return "weka"
        # Without a call's name too, so that the reader of sessions says what is missing.
        return "sessions" if "session" in row and ("call" in row or "input_length" not in row) else "mooncake"
    names = {name.strip() for name in first.split(",")}
    return "azure" if set(AZURE) <= names else "burstgpt" if set(BURSTGPT) <= names else "csv"
