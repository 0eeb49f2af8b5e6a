"""Tables of a sweep: a row a point, the best points, and cells that could not be run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from studies.aspects.binding import LIMITS
from studies.reports import folding, tables, written
from studies.reports.tables import DASH, Table
from studies.statistics import intervals
from studies.statistics.directions import better
from studies.sweeps.axes import short_names
from studies.sweeps.results import Outcome, Sweep

SHOWN = 40
"""Points that a terminal shows; of more it shows the best ones."""
BEST = 20
FIRST = 18
"""Characters to which a terminal may narrow a first column of words."""
LONGEST = 45
"""Characters of a value that is no number; of more its ends are shown, where such values differ."""


def value(found: Any) -> str:
    """A value of an axis for people."""
    if isinstance(found, bool) or found is None:
        return {True: "true", False: "false", None: "none"}[found]
    if isinstance(found, int):
        return str(found) if abs(found) < 10_000 else f"{found:,}"
    if isinstance(found, float):
        return f"{found:.4g}" if abs(found) < 10_000 else f"{found:,.0f}"
    if isinstance(found, Mapping):
        text = ", ".join(f"{name}: {value(inner)}" for name, inner in found.items())
    else:
        text = found if isinstance(found, str) else json.dumps(found, default=str)
    half = (LONGEST - 1) // 2
    return text if len(text) <= LONGEST else f"{text[:half]}…{text[-half:]}"


def where(outcome: Outcome) -> str:
    """A point by its axes, in words."""
    names = short_names(list(outcome.point.values))
    return ", ".join(f"{names[axis]} {value(v)}" for axis, v in outcome.point.values.items()) or "the only point"


def points(sweep: Sweep, metrics: Sequence[str] | None = None, most: int = SHOWN, best: int = BEST) -> Table:
    """A row a point: its axes, figures with intervals, and what its queue waits for. Of more than `most` the `best` by the first
    metric."""
    keys, found = sweep.metrics(metrics), sweep.points(metrics)
    chosen = found
    if keys and (len(found) > most or any(group.random is not None for group in sweep.study.axes)):
        chosen = _ranked(found, keys[0])  # points that were drawn have no order of their own
    chosen = chosen if len(found) <= most else chosen[:best]
    names = short_names(sweep.study.axis_names)
    waits = any(outcome.causes for outcome in chosen)
    head = (*names.values(), *(tables.label(key) for key in keys), *(("queue waits for",) if waits else ()))
    rows = [
        (
            *(value(outcome.point.values[axis]) for axis in names),
            *(written.figure(key, outcome.figures[key]) for key in keys),
            *((_cause(outcome),) if waits else ()),
        )
        for outcome in chosen
    ]
    if not names:
        head, rows = ("", *head), [(sweep.name, *row) for row in rows]
    title = "1 point" if len(found) == 1 else f"{len(found):,} points"
    if len(chosen) < len(found):
        title = (
            f"Best {len(chosen)} of {title} by {tables.label(keys[0])}" if keys else f"First {len(chosen)} of {title}"
        )
    return Table(title, head, rows, "\n".join(_notes(chosen, keys)))


def folded(table: Table, axes: int, width: int) -> list[Table]:
    """The same in tables that fit `width` characters, each with the columns of the axes."""
    kept = range(max(axes, 1))
    # The terminal would rather break values of the first axis than heads.
    if folding.width(table) > width:
        table = replace(table, head=tuple(name.replace(" ", "\n") for name in table.head))
    if folding.width(table, kept) > width / 2:  # else every part would hold little beside the axes
        names = [_name_in_lines(table.head[k], [row[k] for row in table.rows]) for k in kept]
        table = replace(table, head=(*names, *table.head[len(kept) :]))
    return folding.folded(table, width, len(kept))


def best(sweep: Sweep, metrics: Sequence[str] | None = None) -> Table:
    """A row a metric: its best point, and how many others are as good as seeds can tell (their paired difference is not seen)."""
    found = sweep.points(metrics)
    rows = []
    for key in sweep.metrics(metrics):
        ranked = [outcome for outcome in _ranked(found, key) if written.figure(key, outcome.figures[key]) != DASH]
        if len(ranked) < 2 or better(key) is None:
            continue
        first, *others = ranked
        alike = None if first.figures[key].refused else sum(_alike(first, other, key) for other in others)
        rows.append((tables.label(key), written.figure(key, first.figures[key]), tables.number(alike), where(first)))
    told = any(row[2] != DASH for row in rows)
    note = "as good: points whose difference to the best one, on the same seeds, is not seen" if told else ""
    return Table("Best points", ("", "best", "others as good", "at"), rows, note)


def failures(sweep: Sweep, most: int = 20) -> Table:
    """A row a reason, with the cells that could not be run."""
    reasons: dict[str, list[str]] = {}
    for outcome in sweep.points():
        for text in dict.fromkeys(outcome.errors.values()):
            seeds = [str(seed) for seed, said in outcome.errors.items() if said == text]
            every = len(seeds) == outcome.cells
            at = where(outcome) + ("" if every else f", seed {', '.join(seeds)}")
            reasons.setdefault(text, []).append(at)
    rows = [(text, tables.few(at, 3, "\n")) for text, at in list(reasons.items())[:most]]
    more = len(reasons) - most
    note = f"and {more} other reasons: column error of table.parquet" if more > 0 else ""
    return Table(f"{sweep.failed:,} cells failed", ("reason", "at"), rows, note)


def narrow(table: Table, width: int) -> Table:
    """A table whose last column is a list in words, in lines that fit beside the others."""
    first = min(folding.width(table, [0]), FIRST)
    room = width - first - folding.width(table, range(1, len(table.head) - 1)) - 6
    least = max((len(part) for row in table.rows for part in row[-1].split(", ")), default=0) + 1
    return replace(table, rows=[(*row[:-1], _in_lines(row[-1], ", ", max(room, least))) for row in table.rows])


def every(sweep: Sweep, metrics: Sequence[str] | None = None, width: int = 120) -> list[Table]:
    """What the terminal shows."""
    if not sweep.rows:
        return []
    found = folded(points(sweep, metrics), len(sweep.study.axis_names), width)
    top = narrow(best(sweep, metrics), width)
    return [*found, *([top] if top.rows else []), *([failures(sweep)] if sweep.failed else [])]


def _ranked(found: Sequence[Outcome], key: str) -> list[Outcome]:
    """The best first; those without a figure last."""
    sign = -1.0 if better(key) == "higher" else 1.0

    def rank(outcome: Outcome) -> tuple[bool, float]:
        figure = outcome.figures[key]
        known = written.figure(key, figure) != DASH and figure.estimate is not None
        return not known, sign * figure.estimate if known and figure.estimate is not None else 0.0

    return sorted(found, key=rank)


def _alike(one: Outcome, other: Outcome, key: str) -> bool:
    """Whether the mean of their differences, seed by seed, may be zero."""
    first, second = one.by_seed[key], other.by_seed[key]
    differences = [b - a for seed, a in first.items() if a is not None and (b := second.get(seed)) is not None]
    found = intervals.mean(differences)
    return found.low is not None and found.high is not None and found.low <= 0 <= found.high


def _cause(outcome: Outcome) -> str:
    """What most cells wait for."""
    if 2 * len(outcome.causes) < outcome.cells:
        return DASH
    return LIMITS.get(max(sorted(set(outcome.causes)), key=outcome.causes.count), DASH)


def _notes(chosen: Iterable[Outcome], keys: Sequence[str]) -> list[str]:
    """What ± is, and why some figures have none, or are withheld."""
    notes: list[str] = []
    given = {(f.n, f.confidence) for o in chosen for f in o.figures.values() if f.half_width}
    for n, confidence in sorted(given):
        notes.append(f"± half of the {confidence * 100:g} % interval of the mean over {n} seeds")
    missing: dict[str, None] = {}
    refused: dict[str, None] = {}
    for outcome in chosen:
        for key in keys if not outcome.errors else ():
            figure = outcome.figures[key]
            if written.figure(key, figure) == DASH:
                missing[tables.label(key)] = None
            elif figure.refused:
                refused[figure.refused] = None
    if missing:
        notes.append(
            f"{DASH} {', '.join(missing)}: not every seed has one; most often, the sample is too small for a tail"
        )
    return [*notes, *(f"without ±: {why}" for why in refused)]


def _name_in_lines(name: str, values: Sequence[str], least: int = 9) -> str:
    """The name of a field, broken at its underscores to about the width of the values below it."""
    room = max(least, *(len(line) for text in values for line in text.split("\n")))
    return _in_lines(name, "_", room)


def _in_lines(text: str, between: str, room: int) -> str:
    """Parts of a text in lines of at most `room` characters, or one part."""
    first, *others = text.split(between)
    lines = [first]
    for part in others:
        if len(lines[-1]) + len(between) + len(part) + len(between.rstrip()) <= room:
            lines[-1] += between + part
        else:
            lines[-1] += between.rstrip()
            lines.append(part)
    return "\n".join(lines)


def axis_values(found: Iterable[Outcome], axis: str) -> list[Any]:
    """Values that an axis takes, numbers in order, others as they come."""
    seen: dict[str, Any] = {}
    for outcome in found:
        seen.setdefault(json.dumps(outcome.point.values[axis], sort_keys=True, default=str), outcome.point.values[axis])
    values = list(seen.values())
    return sorted(values) if all(is_number(v) for v in values) else values


def is_number(found: Any) -> bool:
    """Whether a value has a place on a line."""
    return isinstance(found, int | float) and not isinstance(found, bool)
