"""Replaying recorded traces: which reader a file needs."""

from __future__ import annotations

from pathlib import Path

from scenarios.documents import read_text
from scenarios.errors import InputError
from scenarios.recorded import RecordedTrace
from scenarios.trace_csv import AZURE, read_azure, read_csv
from scenarios.trace_mooncake import read_mooncake
from scenarios.trace_options import TraceOptions

READERS = {"azure": read_azure, "mooncake": read_mooncake, "csv": read_csv}


def read(options: TraceOptions) -> RecordedTrace:
    """The trace that the options name, plain or gzip.

    Raises:
        InputError: names file, line, what was found and what is allowed.
    """
    if options.path is None:
        raise InputError("workload.trace.path: is required and missing")
    path = Path(options.path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the trace is empty; allowed: Azure CSV, Mooncake JSONL, or a CSV with a header")
    if not text.split("\n", 1)[0].strip():
        raise InputError(f"{path}: line 1: is blank, but a header or a JSON object is needed")
    form = _recognise(text) if options.format == "auto" else options.format
    return READERS[form](text, path, options)


def _recognise(text: str) -> str:
    """A reader's name for a text, from its first line."""
    first = text.split("\n", 1)[0].strip()
    if first.startswith("{"):
        return "mooncake"
    return "azure" if set(AZURE) <= {name.strip() for name in first.split(",")} else "csv"
