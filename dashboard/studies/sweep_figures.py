"""How a study can be looked at: which views make sense, their figures, and which point a mark in one of them is. No Streamlit here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from studies.figures import Figure
from studies.reports import tables
from studies.sweeps import figures
from studies.sweeps.axes import short_names
from studies.sweeps.results import Outcome, Sweep
from studies.sweeps.tables import axis_values, is_number, value, where

LINES, HEAT, PARALLEL, DOTS = "lines", "heat", "parallel", "dots"
VIEWS = {LINES: "Lines", HEAT: "Heat map", PARALLEL: "Parallel coordinates", DOTS: "Point by point"}
MOST_DOTS = 40
"""Points that have a row each."""
NONE = "-"
"""No axis."""


@dataclass(frozen=True)
class Shape:
    """What there is of a study to draw. every: all points; keys: metrics, of which some point is known."""

    sweep: Sweep
    metrics: tuple[str, ...]

    @cached_property
    def every(self) -> list[Outcome]:
        return self.sweep.points(self.metrics)

    @cached_property
    def found(self) -> list[Outcome]:
        """Points that could be run."""
        return [outcome for outcome in self.every if len(outcome.errors) < outcome.cells]

    @cached_property
    def names(self) -> dict[str, str]:
        """Axes, and what they are called."""
        return short_names(self.sweep.study.axis_names)

    @cached_property
    def values(self) -> dict[str, list[Any]]:
        """Values by axis, of the axes that have several."""
        left = {name: axis_values(self.found, name) for name in self.names}
        return {name: axis_values(self.placed, name) for name, found in left.items() if len(found) > 1}

    @cached_property
    def placed(self) -> list[Outcome]:
        """Points that figures have a place for. Of an axis of which one value is left all others failed throughout: a table has these."""
        alone = {name: found for name in self.names if len(found := axis_values(self.found, name)) == 1}
        return [o for o in self.every if all(o.point.values[name] in found for name, found in alone.items())]

    @cached_property
    def numeric(self) -> list[str]:
        return [name for name, found in self.values.items() if all(map(is_number, found))]

    @cached_property
    def whole(self) -> bool:
        """Whether every value of each axis meets every value of the others."""
        return len(self.placed) == math.prod(map(len, self.values.values()))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in self.metrics if any(_is_known(outcome, key) for outcome in self.found))

    def views(self) -> list[str]:
        """Those that make sense, the first of them first."""
        if not self.values or not self.keys:
            return []
        alone = len(self.values) == 1
        offered = {
            LINES: bool(self.along()),
            HEAT: len(self.values) > 1 and self.whole,
            PARALLEL: not alone,
            DOTS: len(self.found) <= MOST_DOTS,
        }
        usual = LINES if alone else HEAT if len(self.values) == 2 else PARALLEL
        ordered = sorted(VIEWS, key=lambda view: view != usual)
        return [view for view in ordered if offered[view]]

    def along(self) -> list[str]:
        """Axes along which lines can be drawn: of a study whose axes do not all meet, those on which every point has a place of its own."""
        if self.whole:
            return self.numeric
        return [name for name in self.numeric if len(self.values[name]) == len(self.placed)]

    def across(self, along: str) -> list[str]:
        """Axes that may have a line a value beside one."""
        if not self.whole:
            return [NONE]
        others = [name for name in self.values if name != along and len(self.values[name]) <= figures.MOST_LINES]
        return [*others, NONE] if len(self.values) > 1 else [NONE]

    def rest(self, *shown: str) -> dict[str, list[Any]]:
        """Axes that a figure over these does not show: one value of each is chosen."""
        return {name: found for name, found in self.values.items() if name not in shown} if self.whole else {}

    def at(self, chosen: Mapping[str, Any], found: Sequence[Outcome]) -> list[Outcome]:
        """Points that have these values."""
        return [o for o in found if all(value(o.point.values[axis]) == text for axis, text in chosen.items())]

    def drawn(self, view: str, x: str, y: str, chosen: Mapping[str, str]) -> list[figures.Drawn]:
        """Figures `(title, figure, wide?)`. x, y: axes. chosen: values of the others, in words."""
        found, every = self.at(chosen, self.found), self.at(chosen, self.placed)
        keys = [key for key in self.keys if any(_is_known(outcome, key) for outcome in found)]
        if view == LINES:
            by = None if y == NONE else y
            return [(tables.label(key), figures.lines(found, x, key, self.names, by), False) for key in keys]
        if view == HEAT:
            return [(tables.label(key), _clickable(every, x, y, key, self.names), False) for key in keys]
        if view == DOTS:
            return [(tables.label(key), figures.dots(found, key), False) for key in keys]
        first = keys[0]
        title = f"Every point; colour: {tables.label(first)}"
        each = [
            (f"{tables.label(first)} by {self.names[name]}", figures.scatter(found, name, first, self.names), False)
            for name in self.values
        ]
        return [(title, figures.parallel(found, list(self.values), keys[:4], self.names), True), *each]

    def clicked(self, figure: Figure, selection: Mapping[str, Any]) -> Outcome | None:
        """The point that was clicked in a figure."""
        for mark in selection.get("points", ()):
            texts = figure["data"][mark["curve_number"]].get("text", ())
            place = mark.get("point_number", mark.get("point_index"))
            if place is not None and place < len(texts):
                text = str(texts[place]).partition("<br>")[0]
                alike = [outcome for outcome in self.every if where(outcome) == text]
                return alike[0] if len(alike) == 1 else None
        return None


def _clickable(found: Sequence[Outcome], x: str, y: str, key: str, names: dict[str, str]) -> Figure:
    """A heat map with a mark that nobody sees on every cell: cells themselves cannot be clicked."""
    figure = figures.heat(found, x, y, key, names)
    (cells,) = figure["data"]
    columns, rows = axis_values(found, x), axis_values(found, y)
    marks = {
        "type": "scatter",
        "mode": "markers",
        "x": [cells["x"][columns.index(o.point.values[x])] for o in found],
        "y": [cells["y"][rows.index(o.point.values[y])] for o in found],
        "text": [cells["customdata"][rows.index(o.point.values[y])][columns.index(o.point.values[x])] for o in found],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 30, "symbol": "square", "opacity": 0},
        "selected": {"marker": {"opacity": 0}},
        "unselected": {"marker": {"opacity": 0}},
        "showlegend": False,
    }
    return {**figure, "data": [cells, marks]}


def _is_known(outcome: Outcome, key: str) -> bool:
    from studies.reports import written

    return written.figure(key, outcome.figures[key]) != tables.DASH
