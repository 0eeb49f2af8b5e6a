"""Reading JSON lines: one object a line, with the line's number for messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError


def json_rows(text: str, path: Path) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """Objects and their lines; blank lines do not count.

    Raises:
        InputError: names the first line that is not an object.
    """
    written = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    lines = np.array([number for number, _ in written], dtype=np.int64)
    try:
        rows = json.loads("[" + ",".join(line for _, line in written) + "]")
    except (ValueError, RecursionError):  # JSON errors are ValueErrors, and so are numbers of thousands of digits
        rows = []
    if len(rows) != len(written) or not all(type(row) is dict for row in rows):
        raise _first_broken(written, path)
    return rows, lines


def _first_broken(written: list[tuple[int, str]], path: Path) -> InputError:
    for number, line in written:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            end = "; a truncated file?" if number == written[-1][0] else ""
            return InputError(f"{path}: line {number}: not valid JSON: {error.msg}, column {error.colno}{end}")
        except (RecursionError, ValueError):
            return InputError(f"{path}: line {number}: not a row of a trace: too deeply nested, or a number too long")
        if not isinstance(row, dict):
            return InputError(
                f"{path}: line {number}: found {str(row)[:40]!r}, but a JSON object is needed on every line"
            )
    return InputError(f"{path}: not one JSON object on each line")
