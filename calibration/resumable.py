"""Measurements in sections that fit a time budget: written as they come, taken up again where they stopped.

A section is a list of items. Each finished item is a row of the section's file, which is replaced as a whole after every item, so that
whatever ends the run leaves what was measured. A later run with the same settings keeps the rows and does the rest.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios.errors import InputError

Row = dict[str, Any]
"""JSON-able."""


@dataclass(frozen=True)
class Item:
    """One measurement.

    seconds: what it takes, about; it is not begun with less than that left. impossible: why it cannot be done here, None if it can.
    """

    name: str
    seconds: float
    run: Callable[[], Row]
    impossible: str | None = None


@dataclass(frozen=True)
class Section:
    """settings: rows measured with others are not kept; JSON-able. items: one after another; each is asked for when those before
    are in `rows` or have been passed over."""

    name: str
    settings: Row
    items: Callable[[Mapping[str, Row]], Iterator[Item]]


@dataclass
class Result:
    """What is known of a section. rows: by item. skipped, failed: why an item has no row."""

    rows: dict[str, Row] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # spent on its rows, by all runs

    @property
    def complete(self) -> bool:
        """Whether every item that was asked for has a row."""
        return not self.skipped and not self.failed


class Budget:
    """Seconds of which a run may use so many."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._begin = clock()

    @property
    def left(self) -> float:
        """Seconds; negative once they are over."""
        return self.seconds - (self._clock() - self._begin)

    def too_short(self, seconds: float) -> str | None:
        """Why something that takes so long is not begun, None if it is."""
        if seconds <= self.left:
            return None
        return f"takes about {seconds:.1f} s, and {max(self.left, 0.0):.1f} s of the budget of {self.seconds:.0f} s are left"


def run_section(section: Section, folder: Path, budget: Budget, say: Callable[[str], None]) -> Result:
    """Does what is missing of a section and fits the budget; the result file is `folder`/<name>.json."""
    path = folder / f"{section.name}.json"
    settings = json.loads(json.dumps(section.settings))
    known = _known(path, settings, say)
    result = Result(seconds=known.seconds)
    # Rows stay in the file until their turn comes, or an interruption would lose them.
    ahead = dict(known.rows)
    for item in section.items(result.rows):
        kept = ahead.pop(item.name, None)
        if kept is not None:
            result.rows[item.name] = kept
            continue
        reason = item.impossible or budget.too_short(item.seconds)
        if reason is not None:
            result.skipped[item.name] = reason
            say(f"{section.name}: {item.name}: skipped, {reason}")
            continue
        begin = time.monotonic()
        try:
            result.rows[item.name] = item.run()
        except Exception as error:  # What else there is to measure is measured nonetheless.
            result.failed[item.name] = f"{type(error).__name__}: {str(error)[:500]}"
            say(f"{section.name}: {item.name}: failed, {result.failed[item.name]}")
        result.seconds += time.monotonic() - begin
        _write(path, section.name, settings, Result(result.rows | ahead, result.skipped, result.failed, result.seconds))
    _write(path, section.name, settings, result)
    return result


def earlier(section: Section, folder: Path) -> Result | None:
    """What earlier runs have left of a section, None if nothing that can be used."""
    result = _known(folder / f"{section.name}.json", json.loads(json.dumps(section.settings)), lambda line: None)
    return result if result.rows else None


def _known(path: Path, settings: Row, say: Callable[[str], None]) -> Result:
    """What an earlier run has left, if it can be used."""
    if not path.exists():
        return Result()
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        rows, before, seconds = saved["rows"], saved["settings"], float(saved["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError):
        say(f"{path}: not a whole result file (truncated?); its section is done again")
        return Result()
    if before != settings:
        changed = sorted(k for k in before.keys() | settings.keys() if before.get(k) != settings.get(k))
        say(f"{path}: was measured with other settings ({', '.join(changed)}); its section is done again")
        return Result()
    return Result(rows, saved.get("skipped", {}), saved.get("failed", {}), seconds)


def _write(path: Path, name: str, settings: Row, result: Result) -> None:
    """Complete or not at all."""
    content = {
        "section": name,
        "complete": result.complete,
        "settings": settings,
        "seconds": round(result.seconds, 3),
        "rows": result.rows,
        "skipped": result.skipped,
        "failed": result.failed,
    }
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise InputError(f"--out: {path} cannot be written: {error.strerror}") from None
