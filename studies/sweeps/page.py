"""The page of a sweep: `sweep.html`, self-contained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from studies.reports import html
from studies.statistics.directions import better
from studies.sweeps import figures, tables
from studies.sweeps.results import Sweep

NAME = "sweep.html"
MOST_ROWS = 1000
"""Points in the table of the page; of more the best ones, and `table.parquet` has all."""


def write(sweep: Sweep, folder: Path | str | None = None, metrics: Sequence[str] | None = None) -> Path:
    """Writes the page into a folder, by default the sweep's own.

    Raises:
        InputError: no cell has such a metric. ValueError: a sweep without a folder, and none given.
    """
    target = folder or sweep.folder
    if target is None:
        raise ValueError("folder: the sweep has none of its own; give one")
    return html.write(page(sweep, metrics), Path(target) / NAME)


def page(sweep: Sweep, metrics: Sequence[str] | None = None) -> html.Page:
    """Figures, the best points, every point with intervals, and what failed."""
    sections = []
    drawn = figures.drawn(sweep, metrics)
    if drawn:
        sections.append(html.Section("What the axes do", _reading(sweep, metrics, drawn), (), (), drawn))
    best = tables.best(sweep, metrics)
    every = tables.points(sweep, metrics, most=MOST_ROWS, best=MOST_ROWS)
    shown = [replace(every, head=tuple(map(_in_lines, every.head)))]
    sections.append(html.Section("Points", "", (), [*([best] if best.rows else []), *shown]))
    if sweep.failed:
        sections.append(html.Section("What failed", "", (), [tables.failures(sweep)]))
    lead = "\n".join(filter(None, (sweep.study.question, counted(sweep), _based(sweep))))
    return html.Page(sweep.name, lead, sections, [("Study", sweep.study.to_yaml())])


def counted(sweep: Sweep) -> str:
    """How many cells there are, in a sentence."""
    points = len({row["point"] for row in sweep.rows})
    seeds = len({row["seed"] for row in sweep.rows})
    text = f"{points:,} {_plural('point', points)} x {seeds:,} {_plural('seed', seeds)}: {len(sweep.rows):,} cells"
    text += f", {sweep.failed:,} of them failed" if sweep.failed else ""
    return text + (f"; {sweep.missing:,} were not run" if sweep.missing else "")


def _based(sweep: Sweep) -> str:
    base = sweep.study.base or "its own scenario"
    return f"based on {base}" + (f", with {', '.join(sweep.study.set)}" if sweep.study.set else "")


def _reading(sweep: Sweep, metrics: Sequence[str] | None, drawn: Sequence[figures.Drawn]) -> str:
    """How the figures are to be read."""
    kinds = {trace["type"] for _, figure, _ in drawn for trace in figure["data"]}
    if "heatmap" in kinds:
        return "Means over seeds; the brighter the better."
    if "parcoords" in kinds:
        first = sweep.metrics(metrics)[0]
        brighter = "; the brighter the better" if better(first) else ""
        return f"A line is a point. Drag along an axis to pick values{brighter}."
    return "Means over seeds. Bands and bars are 95 % intervals of these means."


def _in_lines(head: str) -> str:
    """A head of two lines where it has a unit, or is long."""
    if head.endswith(")"):
        return head.replace(" (", "\n(")
    middle = head.find(" ", len(head) // 2 - 2)
    return head if len(head) < 16 or middle < 0 else f"{head[:middle]}\n{head[middle + 1 :]}"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
