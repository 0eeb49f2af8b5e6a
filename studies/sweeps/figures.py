"""Figures of a sweep: lines with bands along one axis, heat maps of two, parallel coordinates of more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from studies.figures.alt_text import counted, course, joined, number
from studies.figures.style import (
    BLUE,
    DASHES,
    INK,
    PALETTE,
    RED,
    SHADES,
    Figure,
    axis,
    broken,
    faint,
    far_apart,
    layout,
    scale,
)
from studies.reports import tables, written
from studies.reports.tables import DASH
from studies.statistics.directions import better
from studies.sweeps.axes import short_names
from studies.sweeps.results import Outcome, Sweep
from studies.sweeps.tables import axis_values, is_number, value, where

MOST_LINES = len(PALETTE)
WRITTEN = 150
"""Cells of a heat map up to which figures are written into them."""
FEW = 9
"""Values of an axis of parallel coordinates up to which each is named on it."""
NARROW = 18
"""Characters of a line of a value's name."""
ROOM = 36
"""Characters that fit beside one another along a figure."""
Drawn = tuple[str, Figure, bool]


def drawn(sweep: Sweep, metrics: Sequence[str] | None = None) -> list[Drawn]:
    """Figures `(title, figure, wide?)` that show what the axes do to each metric; none for a study of one point."""
    keys, every = sweep.metrics(metrics), sweep.points(metrics)
    found = [outcome for outcome in every if len(outcome.errors) < outcome.cells]
    left = {name: axis_values(found, name) for name in sweep.study.axis_names}
    axes = [name for name in left if len(left[name]) > 1]
    # Of an axis of which one value is left, all others failed throughout; they stand in a table.
    every = [o for o in every if all(o.point.values[name] in left[name] for name in left if name not in axes)]
    values = {name: axis_values(every, name) for name in axes}
    keys = tuple(key for key in keys if any(_known(outcome, key) for outcome in found))
    if not axes or not keys:
        return []
    names = short_names(sweep.study.axis_names)
    in_order = [name for name in axes if all(map(is_number, values[name]))]
    drawn_at_random = any(group.random is not None for group in sweep.study.axes)
    whole = len(every) == math.prod(len(values[name]) for name in axes)
    if len(axes) == 1 or (not whole and not drawn_at_random and in_order and len(axes) == 2):
        if in_order:
            return [(tables.label(key), lines(found, in_order[0], key, names), False) for key in keys]
        return [(tables.label(key), dots(found, key), False) for key in keys]
    if len(axes) == 2 and whole:
        others = [name for name in axes if name not in in_order]
        if len(in_order) == 1 and len(axis_values(found, others[0])) <= MOST_LINES:
            return [(tables.label(key), lines(found, in_order[0], key, names, others[0]), False) for key in keys]
        return [(tables.label(key), heat(every, axes[0], axes[1], key, names), False) for key in keys]
    title = f"Every point; colour: {tables.label(keys[0])}"
    each = [(f"{tables.label(keys[0])} by {names[name]}", scatter(found, name, keys[0], names), False) for name in axes]
    return [(title, parallel(found, axes, keys[:4], names), True), *each]


def lines(found: Sequence[Outcome], along: str, key: str, names: dict[str, str], by: str | None = None) -> Figure:
    """A figure along a numeric axis, the interval of its mean as a band. by: an axis with a line for each of its values."""
    groups = [(None, found)]
    if by is not None:
        groups = [(v, [o for o in found if o.point.values[by] == v]) for v in axis_values(found, by)]
    data: list[dict[str, Any]] = []
    upright = _scale(found, key)
    xs = axis_values(found, along)
    across = _across(xs)
    if len(axis_values([o for o in found if _known(o, key)], along)) < len(xs):
        # Values without a figure keep their place: where a line ends, it is seen to.
        across = across | {"range": _whole(xs, across.get("type") == "log")}
    told = []
    for k, (named, some) in enumerate(groups):
        some = sorted(some, key=lambda o: o.point.values[along])
        if points := [(value(o.point.values[along]), e) for o in some if (e := _estimate(o, key)) is not None]:
            told.append(f"{'' if by is None else f'{names[by]} {value(named)} '}{course(points)}")
        data += _line(some, along, key, "" if named is None else value(named), PALETTE[k], DASHES[k], upright)
    figure: Figure = {
        "data": data,
        "layout": layout(
            alt=f"{tables.label(key)} against {names[along]}: {'; '.join(told) or 'nothing is known'}.",
            xaxis=axis(names[along], **across),
            yaxis=axis(tables.label(key), **upright),
            showlegend=by is not None,
        ),
    }
    if by is not None:
        figure["layout"]["legend"]["title"] = {"text": names[by], "font": {"size": 12}}
    return figure


def _line(
    some: Sequence[Outcome], along: str, key: str, name: str, color: str, dash: str, upright: Mapping[str, Any]
) -> list[dict[str, Any]]:
    known = [o for o in some if _known(o, key)]
    # An interval that reaches below zero has no end on a scale of ratios: its band ends where the figure does.
    least = 10 ** upright["range"][0] if upright.get("type") == "log" else -math.inf
    most = 1.0 if key.endswith("_fraction") else math.inf
    x = [o.point.values[along] for o in known]
    banded = [o for o in known if o.figures[key].half_width is not None]
    at = [o.point.values[along] for o in banded]
    edge = {"type": "scatter", "mode": "lines", "x": at, "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    band = [
        edge | {"y": numbers_of(max(o.figures[key].low or 0.0, least) for o in banded)},
        edge
        | {
            "y": numbers_of(min(o.figures[key].high or 0.0, most) for o in banded),
            "fill": "tonexty",
            "fillcolor": faint(color),
        },
    ]
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": numbers_of(o.figures[key].estimate for o in known),
        "line": {"color": color, "width": 2, "dash": dash},
        "marker": {"size": 6},
        "text": [_told(o, key) for o in known],
        "hovertemplate": "%{text}<extra></extra>",
    }
    return [*(band if banded else []), line]


def dots(found: Sequence[Outcome], key: str) -> Figure:
    """A figure of each point with its interval, a row each."""
    known = [o for o in found if _known(o, key)]
    labels = [", ".join(value(v) for v in o.point.values.values()) for o in known]
    half = [o.figures[key].half_width or 0.0 for o in known]
    mark = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers_of(o.figures[key].estimate for o in known),
        "y": [broken(label, NARROW) for label in labels],
        "error_x": {"type": "data", "array": numbers_of(half), "color": BLUE, "thickness": 1.5, "width": 5},
        "marker": {"color": BLUE, "size": 9},
        "text": [_told(o, key) for o in known],
        "hovertemplate": "%{text}<extra></extra>",
    }
    return {
        "data": [mark],
        "layout": layout(
            min(max(200, 90 + 34 * len(known)), 900),
            _extremes(known, key),
            xaxis=axis(tables.label(key), **_scale(found, key)),
            yaxis=axis("", type="category", autorange="reversed"),
            showlegend=False,
        ),
    }


def heat(found: Sequence[Outcome], x: str, y: str, key: str, names: dict[str, str]) -> Figure:
    """A figure by two axes; the brighter the better. Cells that failed, or whose figure is withheld, are blank."""
    columns, rows = axis_values(found, x), axis_values(found, y)
    # Equal shares for all: a value's place is its rank, and its name is on the axis.
    at = {(columns.index(o.point.values[x]), rows.index(o.point.values[y])): o for o in found}
    cells = [[at.get((i, j)) for i in range(len(columns))] for j in range(len(rows))]
    estimates = _estimates(found, key)
    log = _spread(key, estimates)
    place: Callable[[float], float] = math.log10 if log else float

    def shade(o: Outcome | None) -> float | None:
        estimate = o.figures[key].estimate if o is not None and _known(o, key) else None
        return None if estimate is None else float(f"{place(estimate):.5g}")

    written = len(found) <= WRITTEN
    least, most = (min(estimates, default=0.0), max(estimates, default=1.0))
    bar: dict[str, Any] = {"thickness": 12, "outlinewidth": 0}
    if log:
        ticks = _decades(least, most, dense=2)
        bar |= {"tickvals": [math.log10(t) for t in ticks], "ticktext": [tables.number(t) for t in ticks]}
    heatmap = {
        "type": "heatmap",
        "x": [broken(value(v), NARROW) for v in columns],
        "y": [broken(value(v), NARROW) for v in rows],
        "z": [[shade(o) for o in line] for line in cells],
        "text": [
            [tables.number(o.figures[key].estimate) if o is not None and _known(o, key) else "" for o in line]
            for line in cells
        ],
        "customdata": [["" if o is None else _told(o, key) for o in line] for line in cells],
        "hovertemplate": "%{customdata}<extra></extra>",
        "texttemplate": "%{text}" if written else "",
        "colorscale": "Viridis",
        "reversescale": better(key) == "lower",
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
        "colorbar": bar,
    }
    blank = [
        {
            "x": i,
            "y": j,
            "text": "failed" if o.errors else DASH,
            "showarrow": False,
            "font": {"color": RED if o.errors else INK},
        }
        for (i, j), o in sorted(at.items())
        if not _known(o, key) and written
    ]
    return {
        "data": [heatmap],
        "layout": layout(
            min(max(240, 110 + 34 * len(rows)), 700),
            f"{_extremes(found, key)} Across: {names[x]}, {counted(len(columns), 'value')}; upwards: {names[y]}, {counted(len(rows), 'value')}.",
            xaxis=axis(names[x], type="category", showgrid=False),
            yaxis=axis(names[y], type="category", showgrid=False),
            annotations=blank,
        ),
    }


def parallel(found: Sequence[Outcome], axes: Sequence[str], keys: Sequence[str], names: dict[str, str]) -> Figure:
    """A line a point through its values on every axis and through its figures; coloured by the first of these, brighter is better."""
    known = [o for o in found if all(_known(o, key) for key in keys[:1])]
    dimensions = [_dimension(name, names[name], [o.point.values[name] for o in known], FEW) for name in axes]
    left = max(len(text) for text in (names[axes[0]], *dimensions[0].get("ticktext", ())))
    dimensions += [
        _dimension(key, tables.label(key), [o.figures[key].estimate if _known(o, key) else None for o in known])
        for key in keys
        if all(_known(o, key) for o in known)
    ]
    color = dimensions[len(axes)]["values"]
    line = {"color": color, "colorscale": scale(SHADES), "reversescale": better(keys[0]) == "lower"}
    told = [name["label"] for name in dimensions]
    alt = f"{_extremes(known, keys[0])} A line a point through {joined(told)}."
    return {
        "data": [{"type": "parcoords", "dimensions": dimensions, "line": line, "labelfont": {"size": 12}}],
        "layout": layout(420, alt, margin={"l": max(60, 20 + 6 * left), "r": 90, "t": 60, "b": 24}),
    }


def scatter(found: Sequence[Outcome], along: str, key: str, names: dict[str, str]) -> Figure:
    """A dot a point: a figure by its value on one axis, whatever the others are."""
    known = [o for o in found if _known(o, key)]
    xs = [o.point.values[along] for o in known]
    ordered = all(map(is_number, xs))
    if ordered:
        across = _across(sorted(set(xs)))
    else:
        across = {"type": "category", "categoryarray": [broken(value(v), NARROW) for v in axis_values(found, along)]}
    mark = {
        "type": "scatter",
        "mode": "markers",
        "x": xs if ordered else [broken(value(v), NARROW) for v in xs],
        "y": numbers_of(o.figures[key].estimate for o in known),
        "marker": {"color": BLUE, "size": 7, "opacity": 0.55},
        "text": [_told(o, key) for o in known],
        "hovertemplate": "%{text}<extra></extra>",
    }
    return {
        "data": [mark],
        "layout": layout(
            alt=f"{_extremes(known, key)} A dot a point, by its {names[along]}.",
            xaxis=axis(names[along], **across),
            yaxis=axis(tables.label(key), **_scale(found, key)),
            showlegend=False,
        ),
    }


def _dimension(key: str, name: str, values: Sequence[Any], named: int = 0) -> dict[str, Any]:
    """An axis of parallel coordinates: numbers in place, by their ratios where these are wide; others at whole numbers.

    named: values up to which each has a tick of its own."""
    kinds = list(dict.fromkeys(map(value, values)))
    if not all(map(is_number, values)):
        places: list[Any] = [kinds.index(value(v)) for v in values]
        return {"label": name, "values": places, "tickvals": list(range(len(kinds))), "ticktext": kinds}
    distinct = sorted(set(values))
    log = _spread(key, values) or _in_ratios(distinct)
    found: dict[str, Any] = {"label": name, "values": numbers_of(math.log10(v) if log else v for v in values)}
    if len(distinct) <= named:
        return found | {
            "tickvals": numbers_of(math.log10(v) if log else v for v in distinct),
            "ticktext": [value(v) for v in distinct],
        }
    if not log:
        return found
    ticks = _decades(distinct[0], distinct[-1])
    return found | {"tickvals": numbers_of(map(math.log10, ticks)), "ticktext": [tables.number(t) for t in ticks]}


def _known(outcome: Outcome, key: str) -> bool:
    return written.figure(key, outcome.figures[key]) != DASH


def _estimates(found: Sequence[Outcome], key: str) -> list[float]:
    return [e for o in found if (e := _estimate(o, key)) is not None]


def _estimate(outcome: Outcome, key: str) -> float | None:
    return outcome.figures[key].estimate if _known(outcome, key) else None


def _extremes(found: Sequence[Outcome], key: str) -> str:
    """Of how many points a figure is known, and where it is least and most."""
    known = [(e, o) for o in found if (e := _estimate(o, key)) is not None]
    said = f"{tables.label(key)} of {counted(len(known), 'point')}"
    if not known:
        return f"{said}."
    least, most = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    words = {"lower": ("best", "worst"), "higher": ("worst", "best"), None: ("least", "most")}[better(key)]
    ends = [f"{word} {number(e)} at {where(o)}" for word, (e, o) in zip(words, (least, most), strict=True)]
    return f"{said}: {'; '.join(ends)}."


def _told(outcome: Outcome, key: str) -> str:
    return f"{where(outcome)}<br>{tables.label(key)}: {written.figure(key, outcome.figures[key])}"


def _spread(key: str, values: Sequence[float | None]) -> bool:
    """Whether figures are wide apart and a logarithm shows them all. Parts of a whole keep their scale."""
    found = [v for v in values if v is not None]
    part = key.endswith(("_fraction", "_percent", "_utilization"))
    return not part and far_apart(found)


def _scale(found: Sequence[Outcome], key: str) -> dict[str, Any]:
    """The axis of a figure."""
    estimates = _estimates(found, key)
    if not _spread(key, estimates):
        return {"rangemode": "tozero"}
    least, most = min(estimates), max(estimates)
    return {"type": "log", "range": [math.log10(least) - 0.15, math.log10(most) + 0.15]} | _ticks(_decades(least, most))


def _across(xs: Sequence[Any]) -> dict[str, Any]:
    """An axis of numbers, in order: the values themselves as its ticks where they are few."""
    if not _in_ratios(xs):
        return _ticks(xs) if _named(xs, xs) else {}
    return {"type": "log"} | _ticks(xs if _named(xs, [math.log10(x) for x in xs]) else _decades(xs[0], xs[-1]))


def _whole(xs: Sequence[float], log: bool) -> list[float]:
    """From the first value to the last, and a little beyond."""
    first, last = (math.log10(x) if log else float(x) for x in (xs[0], xs[-1]))
    return [first - 0.06 * (last - first), last + 0.06 * (last - first)]


def _named(xs: Sequence[float], places: Sequence[float]) -> bool:
    """Whether there is room for the name of each value."""
    if len(xs) < 2:
        return True
    least = min(b - a for a, b in pairwise(places))
    return max(len(value(x)) for x in xs) < ROOM * least / (places[-1] - places[0])


def _ticks(found: Sequence[float]) -> dict[str, Any]:
    return {"tickvals": list(found), "ticktext": [value(v) for v in found]}


def _in_ratios(xs: Sequence[Any]) -> bool:
    """Whether values, in order, are spaced by ratios rather than by differences."""
    if len(xs) < 3 or xs[0] <= 0 or xs[-1] < 8 * xs[0]:
        return False
    middle = xs[len(xs) // 2]
    part = (middle - xs[0]) / (xs[-1] - xs[0])
    part_of_ratio = math.log(middle / xs[0]) / math.log(xs[-1] / xs[0])
    rank = (len(xs) // 2) / (len(xs) - 1)
    return abs(part_of_ratio - rank) < abs(part - rank)


def _decades(least: float, most: float, dense: int = 4) -> list[float]:
    """Round ticks from least to most: 1, 2, 5 of each decade, or 1 alone of more than `dense`."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    steps = (1,) if last - first > dense else (1, 2, 5)
    ticks = [step * 10.0**k for k in range(first, last + 1) for step in steps]
    return [t for t in ticks if least * 0.999 <= t <= most * 1.001] or [least, most]


def numbers_of(values: Iterable[float | None]) -> list[float | None]:
    """Five significant digits are more than a screen shows."""
    return [None if v is None else float(f"{v:.5g}") for v in values]
