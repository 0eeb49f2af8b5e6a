"""Reading traces in CSV: the Azure LLM inference traces, and any table with arrivals and token counts."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from scenarios.collecting import uncollected
from scenarios.errors import InputError, unknown
from scenarios.fields import MOST_TOKENS
from scenarios.recorded import RecordedTrace, nanoseconds
from scenarios.trace_options import TimeUnit, TraceOptions

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_USUAL = {
    "arrival": ("arrival", "arrival_time", "arrived_at", "timestamp", "time", "req_time"),
    "prompt_tokens": (
        "prompt_tokens",
        "input_tokens",
        "prompt_len",
        "input_length",
        "num_prefill_tokens",
        "request tokens",
    ),
    "output_tokens": ("output_tokens", "output_len", "output_length", "num_decode_tokens", "response tokens"),
    "tenant": ("tenant", "client", "user", "adapter_dir"),
}
"""Column names that are understood without being told, lower case."""

Ints = NDArray[np.int64]


class CsvTable:
    """A CSV text by columns; rows know their line in the file, blank lines do not count."""

    def __init__(self, text: str, path: Path) -> None:
        self.path = path
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            with uncollected():
                rows = list(reader)
        except csv.Error as error:
            raise InputError(f"{path}: line {reader.line_num}: broken CSV: {error}") from None
        self.header = [name.strip() for name in rows[0]]
        lines = np.arange(1, len(rows) + 1)
        if not all(rows):
            lines = lines[[bool(row) for row in rows]]
            rows = [row for row in rows if row]
        self.lines = lines[1:]
        if len(rows) == 1:
            raise InputError(f"{path}: line 1: there is a header, but not one request")
        if set(map(len, rows)) != {len(self.header)}:
            at = next(i for i, row in enumerate(rows) if len(row) != len(self.header))
            raise InputError(
                f"{path}: line {lines[at]}: found {len(rows[at])} values, but the header has {len(self.header)} "
                f"({', '.join(self.header)}); a truncated file?"
            )
        with uncollected():
            self._columns = list(zip(*rows[1:], strict=True))

    def column(self, name: str) -> Sequence[str]:
        return self._columns[self.header.index(name)]

    def refuse(self, name: str, wrong: Callable[[str], bool], allowed: str) -> InputError:
        for line, value in zip(self.lines, self.column(name), strict=True):
            if wrong(value):
                return InputError(f"{self.path}: line {line}: {name}: found {value!r}, but {allowed} is needed")
        return InputError(f"{self.path}: {name}: {allowed} is needed")

    def counts(self, name: str) -> Ints:
        """A column of whole numbers, none negative (`12.0` counts as 12)."""
        numbers = self.numbers(name)
        if ((numbers < 0) | (numbers > MOST_TOKENS) | (numbers != np.floor(numbers))).any():
            raise self.refuse(
                name, lambda v: not 0 <= float(v) <= MOST_TOKENS or float(v) % 1 != 0, "a number of tokens"
            )
        return numbers.astype(np.int64)

    def numbers(self, name: str) -> NDArray[np.int64] | NDArray[np.float64]:
        """A column of finite numbers: int64 where all are whole, so that large ones stay exact."""
        values = np.array(self.column(name))
        try:
            return values.astype(np.int64)
        except (ValueError, OverflowError):
            pass
        try:
            floats = values.astype(np.float64)
        except ValueError:
            raise self.refuse(name, lambda v: not _is_number(v), "a number") from None
        if not np.isfinite(floats).all():
            raise self.refuse(name, lambda v: not np.isfinite(float(v)), "a finite number")
        return floats

    def moments(self, name: str) -> Ints:
        """A column of dates and times such as `2023-11-16 18:17:03.9799600`, in ns since 1970."""
        values = self.column(name)
        allowed = "a time such as 2023-11-16 18:17:03.9799600"
        if min(map(len, values)) < 19:
            raise self.refuse(name, lambda v: len(v) < 19, allowed)
        if not all("1970" <= value[:4] <= "2200" for value in values):  # nanoseconds would wrap around
            raise self.refuse(name, lambda v: not "1970" <= v[:4] <= "2200", allowed)
        if values[0].endswith(("+00:00", "Z")):
            values = [value.removesuffix("+00:00").removesuffix("Z") for value in values]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # other time zones
                return np.array(values, dtype="datetime64[ns]").astype(np.int64)
        except (ValueError, UserWarning, DeprecationWarning):
            raise self.refuse(name, lambda v: not _is_moment(v), allowed) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_moment(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.datetime64(text.removesuffix("+00:00").removesuffix("Z"), "ns")
    except (ValueError, UserWarning, DeprecationWarning):
        return False
    return True


def read_azure(text: str, path: Path, options: TraceOptions) -> RecordedTrace:
    """Azure's public traces: `TIMESTAMP,ContextTokens,GeneratedTokens`, UTC, CRLF, no newline at the end."""
    if options.time_unit is not None:
        raise InputError(
            f"{path}: an Azure trace holds dates, so time_unit {options.time_unit!r} says nothing; leave it out"
        )
    table = CsvTable(text, path)
    for name in AZURE:
        if name not in table.header:
            raise InputError(f"{path}: line 1: {unknown('column', name, table.header)}")
    arrival = table.moments(AZURE[0])
    return RecordedTrace(path, arrival, table.counts(AZURE[1]), table.counts(AZURE[2]), lines=table.lines)


def read_csv(text: str, path: Path, options: TraceOptions) -> RecordedTrace:
    """Any table with arrivals, prompt tokens and output tokens; the time unit must be said, the columns only if unusual."""
    table = CsvTable(text, path)
    if options.time_unit is None:
        raise InputError(
            f"{path}: say what its times count: workload.trace.time_unit, one of {', '.join(get_args(TimeUnit))} (a wrong guess would "
            "change the load by a factor of a thousand)"
        )
    named = {field: getattr(options.columns, field) for field in _USUAL}
    lower = {name.lower(): name for name in table.header}
    for field, usual in _USUAL.items():
        if named[field] is not None and named[field] not in table.header:
            raise InputError(
                f"{path}: line 1: workload.trace.columns.{field}: {unknown('column', named[field], table.header)}"
            )
        if named[field] is None:
            named[field] = next((lower[name] for name in usual if name in lower), None)
        if named[field] is None and field != "tenant":
            raise InputError(
                f"{path}: line 1: which column is {field}? Found {', '.join(table.header)}; name it in "
                f"workload.trace.columns.{field}, or use one of {', '.join(usual)}"
            )
    arrival = nanoseconds(table.numbers(named["arrival"]), options.time_unit, path)
    trace = RecordedTrace(
        path, arrival, table.counts(named["prompt_tokens"]), table.counts(named["output_tokens"]), lines=table.lines
    )
    if named["tenant"] is not None:
        names, codes = np.unique(np.array(table.column(named["tenant"])), return_inverse=True)
        trace.tenants, trace.tenant = tuple(names.tolist()), codes.astype(np.int64)
    return trace
