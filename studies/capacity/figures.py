"""Figures of a capacity: latency, throughput and goodput against load. Pure functions to Plotly dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scenarios.objectives import LATENCIES
from studies.capacity import boundary
from studies.capacity.evidence import QUANTILES
from studies.capacity.load import TITLES
from studies.capacity.search import Capacity
from studies.figures.alt_text import course, joined
from studies.figures.latency import LATENCY_AXES
from studies.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Figure,
    across,
    axis,
    faint,
    far_apart,
    in_ratios,
    layout,
    upright,
)
from studies.statistics.intervals import Interval

COLORS = dict(zip(QUANTILES, (BLUE, ORANGE, RED), strict=True))
BEYOND = 1.6
"""Times the lowest load that is too high, up to which a figure shows loads."""


def latency(found: Capacity, metric: str) -> Figure:
    """Percentiles of `ttft`, `tpot`, `e2el` or `queue` against load, with their intervals, the limits and the answer."""
    title, unit, factor = LATENCY_AXES[metric]
    loads, data, seen, told = _shown(found), [], [], []
    limits = [o for o in found.objectives if o.statistic is not None and LATENCIES[o.metric] == metric]
    for p in QUANTILES:
        spans = {x: found.curve[x].percentiles.get(f"p{p:g}_{metric}_ms") for x in loads}
        known = {x: span for x, span in spans.items() if span is not None and span.estimate is not None}
        data += _banded(known, f"p{p:g}", COLORS[p], factor / 1e3)
        if known:
            told.append(f"p{p:g} {course([(x, _short(span.estimate, factor / 1e3)) for x, span in known.items()])}")
        seen += [span.estimate * factor / 1e3 for span in known.values() if span.estimate is not None]
    top = [o.limit * factor for o in limits]
    log = far_apart(value for value in seen if value > 0)
    shapes, notes = _marks(found, loads)
    figure: Figure = {
        "data": data,
        "layout": layout(
            360,
            f"{title} ({unit}) against load: {'; '.join(told) or 'nothing is known'}. {_answer_said(found)}",
            xaxis=_loads(found),
            yaxis=axis(f"{title} ({unit})", **in_ratios(log)),
            shapes=[*shapes, *(across(at, width=2) for at in top)],
        ),
    }
    figure["layout"]["annotations"] = notes + [
        {
            "xref": "paper",
            "x": 0,
            "xanchor": "left",
            "yanchor": "bottom",
            "y": _place(at, log),
            "text": str(objective),
            "showarrow": False,
            "font": {"size": 11},
        }
        for at, objective in zip(top, limits, strict=True)
    ]
    return figure


def throughput(found: Capacity) -> Figure:
    """Requests that end a second, and those that end within their promises, against load; the answer and the knee."""
    loads = _shown(found)
    data, told = [], []
    for key, name, color in (
        ("request_throughput", "ended", BLUE),
        ("request_goodput", "ended within their promises", GREEN),
    ):
        spans = {x: found.curve[x].interval(key) for x in loads}
        known = {x: span for x, span in spans.items() if span.estimate is not None}
        data += _banded(known, name, color, 1.0)
        if known:
            told.append(f"{name} {course([(x, _short(span.estimate, 1.0)) for x, span in known.items()])}")
    if found.over.unit == "requests/s":
        top = max(loads)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "sent",
                "x": [0, top],
                "y": [0, top],
                "line": {"color": GREY, "dash": "dash", "width": 1},
                "hoverinfo": "skip",
            }
        )
    shapes, notes = _marks(found, loads)
    return {
        "data": data,
        "layout": layout(
            360,
            f"Requests a second against load: {'; '.join(told) or 'nothing is known'}. {_answer_said(found)}",
            xaxis=_loads(found),
            yaxis=axis("Requests a second", rangemode="tozero"),
            shapes=shapes,
            annotations=notes,
        ),
    }


def _shown(found: Capacity) -> list[float]:
    """Loads of a figure: far above the answer there is only overload."""
    loads = list(found.curve)
    end = found.broken
    kept = [x for x in loads if end is None or x <= BEYOND * end]
    return kept if len(kept) > 1 else loads


def _banded(spans: dict[float, Interval], name: str, color: str, factor: float) -> list[dict[str, Any]]:
    """A line with its band."""
    if not spans:
        return []
    loads = list(spans)
    middle = [_short(span.estimate, factor) for span in spans.values()]
    low, high = (
        [
            _short(span.estimate if end is None else end, factor)
            for span in spans.values()
            for end in (getattr(span, side),)
        ]
        for side in ("low", "high")
    )
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*loads, *reversed(loads)],
        "y": [*high, *reversed([max(value, 0.0) for value in low])],
        "fill": "toself",
        "fillcolor": faint(color),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": loads,
        "y": middle,
        "line": {"color": color, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"{name} %{{y:.4g}} at %{{x:.4g}}<extra></extra>",
    }
    return [band, line]


def _short(value: float | None, factor: float) -> float:
    return float(f"{(value or 0.0) * factor:.5g}")


def _loads(found: Capacity) -> dict[str, Any]:
    unit = f" ({found.over.unit})" if found.over.unit else ""
    return axis(f"{TITLES.get(found.over.path, found.over.path)}{unit}", rangemode="tozero")


def _marks(found: Capacity, shown: Sequence[float]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Where the answer lies, or where it will by estimate; the knee; of an outline also the scenario as it is. Shapes and notes."""
    shapes, notes = _answer(found)
    knee = found.knee
    if knee is not None and knee in shown:
        shapes.append(upright(knee, ORANGE, width=2))
        notes.append(_note(knee, "knee", 0.02))
    if not found.tried and min(shown) <= found.over.start <= max(shown):
        shapes.append(upright(found.over.start, GREY, "solid"))
        notes.append(_note(found.over.start, "as it is", 0.12))
    return shapes, notes


def _answer(found: Capacity) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The interval as a band, where only one end is known a line; of an outline a pale one, that says that it is an estimate."""
    low, high = found.interval
    ends = [end for end in (low, high) if end is not None]
    look: dict[str, Any] = {"fillcolor": GREEN, "opacity": 0.3, "line": {"color": GREEN, "width": 1.5}}
    shapes, notes = [], []
    if not found.tried:
        passed = boundary.upper(found) or boundary.lower(found)
        if passed is not None:
            ends = [passed.low, passed.high]
            look = {"fillcolor": faint(GREEN), "line": {"width": 0}}
            shapes.append(upright(passed.load, GREEN, "dash", 2))
            notes.append(_note(passed.load, "limit (estimate)", 0.22))
    if ends:
        place = {"yref": "paper", "y0": 0, "y1": 1, "x0": ends[0], "x1": ends[-1]}
        shapes.insert(0, {"type": "rect", "layer": "below"} | look | place)
    return shapes, notes


def _note(x: float, text: str, height: float) -> dict[str, Any]:
    """A word beside an upright line."""
    where = {"x": x, "xanchor": "left", "yref": "paper", "y": height, "yanchor": "bottom"}
    return where | {"text": f" {text}", "showarrow": False, "font": {"size": 11}}


def _answer_said(found: Capacity) -> str:
    """Up to where the objectives hold, and where the knee is."""
    knee = f" The knee is at {found.over.said(found.knee)}." if found.knee is not None else ""
    return _limit_said(found) + knee


def _limit_said(found: Capacity) -> str:
    low, high = found.interval
    asked = joined([str(objective) for objective in found.objectives])
    holds = "holds" if len(found.objectives) == 1 else "hold"
    if not found.tried:
        above, below = boundary.upper(found), boundary.lower(found)
        from_ = "" if below is None else f" from about {found.over.said(float(f'{below.load:.3g}'))}"
        to = "" if above is None else f" up to about {found.over.said(float(f'{above.load:.3g}'))}"
        return f"By estimate {asked} {holds}{from_}{to}." if from_ or to else ""
    if low is None:
        return f"There is no load at which {asked} {holds}."
    no_longer = "" if high is None else f", and no longer at {found.over.said(high)}"
    return f"{asked} {holds} up to {found.over.said(low)}{no_longer}."


def _place(value: float, log: bool) -> float:
    from math import log10

    return log10(value) if log else value
