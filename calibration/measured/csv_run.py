"""Reading a measured run from a plain table: arrival, input and output tokens, TTFT and E2E of each request.

Every time says its unit: in its column's name (`ttft_ms`, `e2e (s)`) or by the option that holds for all of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np

from calibration.measured.checked import measured
from calibration.measured.run import MeasuredRun
from scenarios.documents import read_text
from scenarios.errors import InputError
from scenarios.trace_csv import CsvTable
from scenarios.trace_options import TimeUnit

LAYOUT = "arrival_s,input_tokens,output_tokens,ttft_ms,e2e_ms"
_NAMES = {
    "arrival": ("arrival", "arrival time", "arrived at", "timestamp", "start time", "start", "sent"),
    "input": ("input tokens", "input", "input len", "input length", "prompt tokens", "prompt len", "isl"),
    "output": ("output tokens", "output", "output len", "output length", "completion tokens", "osl"),
    "ttft": ("ttft", "time to first token", "first token"),
    "e2e": ("e2e", "e2el", "latency", "end to end", "e2e latency"),
    "tpot": ("tpot",),
}
_NEEDED = ("arrival", "input", "output", "ttft", "e2e")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SPELLED = {
    "sec": "s",
    "secs": "s",
    "seconds": "s",
    "second": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "µs": "us",
}
_SUFFIX = re.compile(r"^(.*?)[\s_\-]*[\(\[_\s]\s*([a-zµ]+)\s*[\)\]]?$")


def read_csv_run(path: Path | str, *, unit: TimeUnit | None = None) -> MeasuredRun:
    """One run.

    Args:
        unit: of every time whose column does not name its own.

    Raises:
        InputError: names the file, the line, the column, what was found and what is allowed.
    """
    path = Path(path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty; a header such as {LAYOUT} and a line a request are needed")
    table = CsvTable(text, path)
    columns = _columns(table.header)
    if missing := [name for name in _NEEDED if name not in columns]:
        raise InputError(
            f"{path}: line 1: no column for {', '.join(missing)}; found {', '.join(table.header)}, but a header such as "
            f"{LAYOUT} is needed"
        )
    units = _units(path, columns, unit)
    times = {
        name: np.asarray(table.numbers(columns[name][0]), dtype=np.float64) * _UNITS[units[name]] for name in units
    }
    arrival = table.numbers(columns["arrival"][0])
    if int(arrival.max()) - int(arrival.min()) >= 2**63:
        arrival = arrival.astype(np.float64)  # for the check of how far apart they are
    # Whole nanoseconds since 1970 do not fit a double: the origin goes first.
    times["arrival"] = np.asarray(arrival - arrival.min(), dtype=np.float64) * _UNITS[units["arrival"]]
    tokens = {name: table.counts(columns[name][0]) for name in ("input", "output")}
    return measured(
        path.name.removesuffix(".gz").removesuffix(".csv"),
        path,
        arrival=times["arrival"],
        input_tokens=tokens["input"],
        output_tokens=tokens["output"],
        ttft=times["ttft"],
        e2e=times["e2e"],
        tpot=times.get("tpot"),
        origin="sent",
        rows=[f"line {line}" for line in table.lines.tolist()],
        columns={
            {"input": "input_tokens", "output": "output_tokens"}.get(name, name): column
            for name, (column, _) in columns.items()
        },
    )


def is_csv_run(path: Path) -> bool:
    """Whether the file's header names at least arrivals, tokens and one latency."""
    try:
        header = read_text(path).split("\n", 1)[0]
    except InputError:
        return False
    found = _columns([name.strip() for name in header.split(",")])
    return {"arrival", "input", "output"} <= set(found) and bool({"ttft", "e2e"} & set(found))


def _columns(header: list[str]) -> dict[str, tuple[str, str | None]]:
    """Column and the unit that its name states, by what it holds; the first that fits."""
    known = {spelling: name for name, spellings in _NAMES.items() for spelling in spellings}
    found: dict[str, tuple[str, str | None]] = {}
    for column in header:
        plain = re.sub(r"[\s_\-]+", " ", column.strip().lower())
        name, unit = known.get(plain), None
        if name is None and (parts := _SUFFIX.match(column.strip().lower())):
            stated = _SPELLED.get(parts[2], parts[2])
            name = known.get(re.sub(r"[\s_\-]+", " ", parts[1]).strip())
            unit = stated if stated in _UNITS else None
            if unit is None:
                name = None
        if name is not None:
            found.setdefault(name, (column, unit))
    return found


def _units(path: Path, columns: dict[str, tuple[str, str | None]], given: TimeUnit | None) -> dict[str, str]:
    """The unit of each time.

    Raises:
        InputError: a column's own unit is not the given one, a unit is nowhere, or latencies are in different ones.
    """
    units: dict[str, str] = {}
    for name in ("arrival", "ttft", "e2e", "tpot"):
        if name not in columns:
            continue
        column, own = columns[name]
        if own is not None and given is not None and own != given:
            raise InputError(
                f"{path}: line 1: {column}: its name says {own}, but --time-unit says {given}; give one of them"
            )
        if own is None and given is None:
            raise InputError(
                f"{path}: line 1: {column}: in which unit? Name the column {column}_s or {column}_ms, or give --time-unit "
                f"({', '.join(get_args(TimeUnit))}); a wrong guess would be off by a factor of a thousand"
            )
        units[name] = str(own or given)
    mixed = {units[name] for name in ("ttft", "e2e", "tpot") if name in units}
    if len(mixed) > 1:
        shown = ", ".join(f"{columns[n][0]} in {units[n]}" for n in ("ttft", "e2e", "tpot") if n in units)
        raise InputError(
            f"{path}: line 1: found latencies in different units ({shown}), but one unit is needed; convert them"
        )
    return units
