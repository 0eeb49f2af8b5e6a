"""Replaying recorded traces: which reader a file needs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

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


def read(options: TraceOptions) -> RecordedTrace | SessionTrace:
    """The trace that the options name, plain or gzip.

    Raises:
        InputError: names file, line, what was found and what is allowed.
    """
    if options.path is None:
        raise InputError("workload.trace.path: is required and missing")
    path = Path(options.path)
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
