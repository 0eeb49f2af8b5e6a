"""Reading tables of numbers that other tools measured: strict, so that a slip is found here and not in a prediction."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError, nearest

Floats = NDArray[np.float64]

_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_LONGEST = 1e15
"""Nanoseconds of an operator: eleven days. Nothing that is counted here is more, either."""


@dataclass(frozen=True)
class NumberTable:
    """Columns of one file, `(n,)` each, and the line that every row stood on."""

    path: Path
    numbers: dict[str, Floats]
    words: dict[str, list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def refused(self, row: int, problem: str) -> InputError:
        return InputError(f"{self.path}: line {self.lines[row]}: {problem}")

    def take(self, rows: Sequence[int] | NDArray[np.intp]) -> NumberTable:
        chosen = [int(row) for row in rows]
        return NumberTable(
            self.path,
            {name: column[chosen] for name, column in self.numbers.items()},
            {name: [column[i] for i in chosen] for name, column in self.words.items()},
            [self.lines[i] for i in chosen],
        )


def read_numbers(
    path: Path,
    *,
    counts: Sequence[str] = (),
    times: Sequence[str] = (),
    words: Sequence[str] = (),
    signed: Sequence[str] = (),
    blank: Sequence[str] = (),
    optional: Sequence[str] = (),
    key: Sequence[str] = (),
) -> NumberTable:
    """Reads a CSV file (or `.csv.gz`) with a header line. Columns that nobody asks for are not looked at.

    Args:
        counts: columns of finite numbers, none negative. times: the same, above 0. words: columns of text. signed: any number,
            `nan` included. blank: as times, but a cell may hold nothing or 0, which becomes NaN. optional: those that may be missing.
        key: columns that tell rows apart; two rows that agree in all of them are refused.

    Raises:
        InputError: no such file, nothing in it, a column that is missing, a value that is not a number, not finite, or negative.
    """
    header, rows, lines = _cells(path)
    wanted = [*counts, *times, *words, *signed, *blank]
    for name in wanted:
        if name not in header and name not in optional:
            raise InputError(f"{path}: line 1: column {name} is missing; {_instead(name, header)}")
    at = {name: header.index(name) for name in wanted if name in header}
    table = NumberTable(
        path, {}, {name: [row[at[name]].strip() for row in rows] for name in words if name in at}, lines
    )
    for name in (*counts, *times, *signed, *blank):
        if name in at:
            cells = [row[at[name]] for row in rows]
            table.numbers[name] = (
                _blanks(table, name, cells)
                if name in blank
                else _column(table, name, cells, name in times, name in signed)
            )
    _distinct(table, [name for name in key if name in at])
    return table


def _cells(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file, but this layout needs it")
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as packed:
                cells = [(number, row) for number, row in enumerate(csv.reader(packed), 1) if row]
        else:
            with path.open(encoding="utf-8-sig", newline="") as plain:
                cells = [(number, row) for number, row in enumerate(csv.reader(plain), 1) if row]
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from None
    if not cells:
        raise InputError(f"{path}: the file is empty, but a header line and rows are needed")
    header = [name.strip() for name in cells[0][1]]
    if len(cells) == 1:
        raise InputError(f"{path}: only a header line, not one row; was the measurement cut off?")
    for number, row in islice(cells, 1, None):
        if len(row) != len(header):
            raise InputError(
                f"{path}: line {number}: found {len(row)} values for {len(header)} columns; a truncated file?"
            )
    return header, [row for _, row in cells[1:]], [number for number, _ in cells[1:]]


def _instead(name: str, header: Sequence[str]) -> str:
    stem, _, unit = name.rpartition("_")
    for other, scale in _UNITS.items():
        if stem and unit in _UNITS and f"{stem}_{other}" in header:
            factor = scale / _UNITS[unit]
            return f"found {stem}_{other}, but times are in {unit} here: multiply by {factor:g} and name it {name}"
    close = nearest(name, header)
    return f"found {', '.join(header)}" + (f"; is it {close}?" if close else "")


def _column(table: NumberTable, name: str, cells: list[str], is_time: bool, signed: bool) -> Floats:
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        row = next(i for i, cell in enumerate(cells) if not _is_number(cell))
        found = cells[row].strip() or "nothing"
        raise table.refused(row, f"{name}: found {found[:40]}, but a number is needed") from None
    if signed:
        return values
    for wrong, allowed in (
        (~np.isfinite(values), "a finite number is needed; measure the row again or leave it out"),
        (values < 0, "it cannot be negative"),
        ((values <= 0) & is_time, "no operator takes no time; measure the row again"),
        ((values > _LONGEST) & is_time, "that is over a week; is the unit right?"),
        (values > _LONGEST, f"at most {_LONGEST:g} is counted"),
    ):
        if wrong.any():
            row = int(np.argmax(wrong))
            raise table.refused(row, f"{name}: found {cells[row].strip()}, but {allowed}")
    return values


def _blanks(table: NumberTable, name: str, cells: list[str]) -> Floats:
    values = np.full(len(cells), np.nan)
    full = [i for i, cell in enumerate(cells) if cell.strip() not in ("", "0", "0.0")]
    if full:
        values[full] = _column(table.take(full), name, [cells[i] for i in full], True, False)
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _distinct(table: NumberTable, key: Sequence[str]) -> None:
    if not key:
        return
    columns = [table.words[name] if name in table.words else table.numbers[name].tolist() for name in key]
    seen: dict[tuple[object, ...], int] = {}
    for row, values in enumerate(zip(*columns, strict=True)):
        first = seen.setdefault(values, row)
        if first != row:
            said = ", ".join(f"{name} {_plain(value)}" for name, value in zip(key, values, strict=True))
            raise table.refused(row, f"{said} stands twice, first in line {table.lines[first]}; keep one of them")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
