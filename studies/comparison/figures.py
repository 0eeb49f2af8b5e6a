"""Figures of a comparison: the Pareto set, and what policies have more than the baseline. Pure functions to Plotly dictionaries."""

from __future__ import annotations

from typing import Any

from studies.comparison.result import Comparison
from studies.figures.alt_text import joined, number
from studies.figures.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    LETTERS,
    ORANGE,
    PAPER,
    RED,
    Figure,
    axis,
    far_apart,
    in_ratios,
    layout,
)
from studies.pareto import Mark
from studies.reports import tables, written
from studies.reports.tables import DASH
from studies.statistics.directions import better

MARKS: dict[Mark, dict[str, Any]] = {
    "on the front": {"color": BLUE, "symbol": "circle", "size": 11},
    "open": {"color": PAPER, "symbol": "circle", "size": 10, "line": {"color": ORANGE, "width": 2}},
    "dominated": {"color": GREY, "symbol": "x", "size": 9},
}
COLORS = {"better": GREEN, "worse": RED, "higher": BLUE, "lower": BLUE}
LONG = 24
NAMED = 14
"""Policies up to which a point carries its name; of more it is read under the pointer."""


def pareto(found: Comparison, k: int) -> Figure:
    """The k-th pair of figures: a point a policy with its intervals, those that nobody dominates joined."""
    across, up = found.fronts[k]
    standing = found.standings[k]
    data: list[dict[str, Any]] = []
    places = _places(found, across)
    front = [
        (x.estimate, y.estimate)
        for policy in found.runs
        if standing[policy].mark in ("on the front", "open")
        and (x := found.interval(policy, across)).estimate is not None
        and (y := found.interval(policy, up)).estimate is not None
    ]
    if len(front) > 1:
        ordered = sorted(front)
        line = {"color": INK, "width": 1, "dash": "dot"}
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [x for x, _ in ordered],
                "y": [y for _, y in ordered],
                "line": line,
                "hoverinfo": "skip",
                "showlegend": False,
            }
        )
    for mark, marker in MARKS.items():
        policies = [policy for policy in found.runs if standing[policy].mark == mark]
        if not policies:
            continue
        xs, ys = ([found.interval(policy, key) for policy in policies] for key in (across, up))
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text" if len(found.runs) <= NAMED else "markers",
                "name": mark,
                "x": [x.estimate for x in xs],
                "y": [y.estimate for y in ys],
                "text": policies,
                "textposition": [places[policy] for policy in policies],
                "cliponaxis": False,
                "marker": marker,
                "error_x": _bars([x.half_width for x in xs]),
                "error_y": _bars([y.half_width for y in ys]),
                "hovertemplate": f"%{{text}}<br>{tables.name(across)} %{{x:.4g}}<br>{tables.name(up)} %{{y:.4g}}<extra></extra>",
            }
        )
    return {
        "data": data,
        "layout": layout(380, _front_said(found, k), xaxis=_titled(found, across), yaxis=_titled(found, up)),
    }


def _front_said(found: Comparison, k: int) -> str:
    """Which policies nobody dominates, and where they stand."""
    across, up = found.fronts[k]
    by_mark: dict[Mark, list[str]] = {mark: [] for mark in MARKS}
    for policy, standing in found.standings[k].items():
        if standing.mark in by_mark:
            by_mark[standing.mark].append(policy)
    places = [
        f"{policy} ({number(y)} at {number(x)})"
        for policy in by_mark["on the front"]
        if (x := found.interval(policy, across).estimate) is not None
        and (y := found.interval(policy, up).estimate) is not None
    ]
    said = [f"{tables.label(up)} against {tables.label(across)} of {len(found.runs)} policies"]
    said.append(f"on the front: {joined(places)}" if places else "none is surely on the front")
    said += [f"{mark}: {joined(by_mark[mark])}" for mark in ("open", "dominated") if by_mark[mark]]
    return f"{'; '.join(said)}."


def _places(found: Comparison, across: str) -> dict[str, str]:
    """Where names stand: by turns above and below from left to right, inwards at the sides."""
    ordered = sorted(found.runs, key=lambda policy: found.interval(policy, across).estimate or 0.0)
    sides = {0: "right", len(ordered) - 1: "left"} if len(ordered) > 1 else {}
    return {policy: f"{('top', 'bottom')[k % 2]} {sides.get(k, 'center')}" for k, policy in enumerate(ordered)}


def _bars(halves: list[float | None]) -> dict[str, Any]:
    return {"type": "data", "array": [half or 0.0 for half in halves], "color": GREY, "thickness": 1.2, "width": 4}


def _titled(found: Comparison, key: str) -> dict[str, Any]:
    """The axis of a figure, in equal ratios where values are far apart."""
    values = [v for policy in found.runs if (v := found.interval(policy, key).estimate) is not None]
    log = in_ratios(True) if far_apart(values) else {}
    way = {"lower": "less is better", "higher": "more is better", None: ""}[better(key)]
    title = f"{tables.label(key)}, {way}" if way else tables.label(key)
    return axis(title if len(title) <= LETTERS else title.replace(", ", ",<br>"), **log)


def is_long(name: str) -> bool:
    """Whether a name takes most of a small figure's width."""
    return len(name) > LONG


def change(found: Comparison, key: str) -> Figure | None:
    """What each policy has more of a figure than the baseline, in percent of it (shares in points), with intervals; None where
    nobody has any, or all are the same."""
    points = written.is_share(key)
    names, middles, below, above, colors, texts = [], [], [], [], [], []
    for policy in reversed(found.runs):  # the first one above
        if policy == found.baseline:
            continue
        difference = found.difference(policy, key)
        part = difference.absolute if points else difference.relative
        scale = 1.0 if points and key.endswith("_percent") else 100.0
        said = written.change(key, difference)
        if part.estimate is None or said == DASH:
            continue
        low, high = (part.estimate if end is None else end for end in (part.low, part.high))
        names.append(policy)
        middles.append(part.estimate * scale)
        below.append((part.estimate - low) * scale)
        above.append((high - part.estimate) * scale)
        colors.append(COLORS.get(difference.verdict, GREY))
        texts.append(f"{said} ({difference.verdict})")
    if not any(middles):
        return None
    unit = "points" if points else "%"
    against = "the baseline" if is_long(found.baseline) else found.baseline
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "markers",
                "x": middles,
                "y": names,
                "text": texts,
                "marker": {"color": colors, "size": 10},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": above,
                    "arrayminus": below,
                    "color": GREY,
                    "width": 4,
                },
                "hovertemplate": "%{y}<br>%{text}<extra></extra>",
            }
        ],
        "layout": layout(
            90 + 28 * len(names),
            f"{tables.label(key)} of each policy against {found.baseline}: "
            f"{'; '.join(f'{name} {text}' for name, text in zip(names[::-1], texts[::-1], strict=True))}.",
            xaxis=axis(f"more than {against} ({unit})", zeroline=True, zerolinecolor=INK, zerolinewidth=1),
            yaxis=axis("", type="category"),
            showlegend=False,
            margin={"l": 8, "r": 12, "t": 8, "b": 8},
        ),
    }
