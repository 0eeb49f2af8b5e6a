"""Uploaded traces that are longer than a page replays at once: only their beginning is taken, and that is said. Without Streamlit."""

from __future__ import annotations

import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from typing import IO

from dashboard import uploads
from dashboard.bounds import MOST_REQUESTS
from dashboard.settings import Settings
from scenarios import InputError, Scenario

FIRST = 20_000
"""Requests of a long trace that are replayed unless somebody asks for more: a few seconds of simulation."""
LIMIT = "workload.trace.limit"
_CHUNK, _MOST_CHUNKS = 1 << 20, 256


def limited(settings: Settings) -> Settings:
    """The settings with a trace of which no more is replayed than a page bears, unless they say how much."""
    try:
        options = settings.scenario().workload.trace
    except InputError:
        return settings  # which the page says
    if settings.trace is None or options is None or options.limit is not None:
        return settings
    return settings.changed(LIMIT, str(FIRST)) if holds_more(settings.trace, FIRST) else settings


def said(settings: Settings, scenario: Scenario) -> str | None:
    """That only the beginning of an uploaded trace is replayed, and how to take more; None where all of it is."""
    options = scenario.workload.trace
    upload = None if settings.trace is None else uploads.find(settings.trace)
    if upload is None or options is None or options.limit is None or not holds_more(upload.digest, options.limit):
        return None
    return (
        f"Replayed are the first {options.limit:,} requests of {upload}, which holds more. To take more, raise “First requests only” "
        f"(`{LIMIT}`): up to {MOST_REQUESTS:,} on a page; twice as many take twice as long."
    )


def holds_more(digest: str, lines: int) -> bool:
    """Whether an uploaded trace has more records than that, as its lines tell; a head counts as none."""
    upload = uploads.find(digest)
    return upload is not None and _more(upload.path, lines)


@lru_cache(maxsize=256)
def _more(path: Path, lines: int) -> bool:
    try:
        with _opened(path) as file:
            head = file.read(_CHUNK)
            found = head.count(b"\n") - (not head.lstrip().startswith(b"{"))
            for _ in range(_MOST_CHUNKS):
                if found > lines:
                    return True
                part = file.read(_CHUNK)
                if not part:
                    return False
                found += part.count(b"\n")
    except (OSError, EOFError, zlib.error):
        return False  # who reads it says what is wrong
    return False


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.GzipFile(path) if packed else path.open("rb")  # type: ignore[return-value]
