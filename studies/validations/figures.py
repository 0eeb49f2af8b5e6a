"""Figures of a validation: pure functions from its record to Plotly dictionaries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from calibration.validate import TOLERANCE
from studies.figures import LATENCY_AXES, POINTS
from studies.figures.alt_text import counted
from studies.figures.notice import notice
from studies.figures.style import GREY, INK, PALE, PALETTE, RED, Figure, axis, faint, far_apart, layout, upright
from studies.figures.ticks import log_ticks
from studies.reports import tables
from studies.reports.tables import Table
from studies.validations.record import Points, Row, Validation

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "cross")
ROW = 20
"""Pixels of one line of a dot plot, for each group."""
_LATENCY = re.compile(r"(mean|median|p[\d.]+)_(ttft|tpot|itl|e2el)_ms")


def metrics(found: Validation) -> list[str]:
    """Latencies that `scatter` can show: those of its points, else those of its figures."""
    if found.points:
        return list(dict.fromkeys(points.metric for points in found.points))
    named = [_LATENCY.fullmatch(row.metric) for row in found.rows if row.measured is not None]
    return list(dict.fromkeys(match[2] for match in named if match is not None and match[2] in LATENCY_AXES))


def scatter(found: Validation, metric: str) -> Figure:
    """Predicted against measured of `ttft`, `tpot` or `e2el`, the diagonal, and the band that repeats fill.

    One dot a request or measured point. A record without them shows its means and percentiles, one dot a figure.
    """
    title, unit, factor = LATENCY_AXES[metric]
    groups = [points for points in found.points if points.metric == metric]
    drawn = [_dots(points, k, factor, unit) for k, points in enumerate(groups)]
    what = f"{sum(len(points.measured) for points in groups):,} {groups[0].each}s" if groups else ""
    if not groups:
        rows = [row for row in found.rows if (match := _LATENCY.fullmatch(row.metric)) and match[2] == metric]
        drawn = [_figures(of, rows, k, factor, unit) for k, of in enumerate(dict.fromkeys(row.of for row in rows))]
        what = f"{len(rows)} figures"
    seen = [value for trace in drawn for axis_ in ("x", "y") for value in trace[axis_]]
    if not seen:
        return notice(found.absent.get("points", f"This validation says nothing of {title.lower()}."))
    log = far_apart(seen)
    low, high = (min(seen) / 1.15, max(seen) * 1.15) if log else (0.0, max(seen) * 1.05)
    floor = _noise(found, metric)
    ends = log_ticks(low, high) if log else {"range": [0, high]}
    band = [] if floor is None else [_band(low, high, floor, log)]
    alt = f"{title} of {what}, predicted against measured{_outside(drawn, floor)}."
    return {
        "data": [*band, *drawn, _diagonal(low, high)],
        "layout": layout(
            380,
            alt,
            showlegend=True,
            xaxis=axis(f"{title}, measured ({unit})", **ends),
            yaxis=axis(f"predicted ({unit})", **ends),
            margin={"l": 8, "r": 12, "t": 40, "b": 8},
        ),
    }


def _dots(points: Points, k: int, factor: float, unit: str) -> dict[str, Any]:
    every = max(1, -(-len(points.measured) // POINTS))
    return _markers(points.group or f"{points.each}s", k, opacity=0.55) | {
        "x": [_digits(value * factor) for value in points.measured[::every]],
        "y": [_digits(value * factor) for value in points.predicted[::every]],
        "hovertemplate": f"measured %{{x:.4g}} {unit}<br>predicted %{{y:.4g}} {unit}<extra>{points.group}</extra>",
    }


def _figures(of: str, rows: Sequence[Row], k: int, factor: float, unit: str) -> dict[str, Any]:
    mine = [row for row in rows if row.of == of and row.measured is not None and row.predicted is not None]
    return _markers(of or "figures", k) | {
        "x": [_digits((row.measured or 0) / 1e3 * factor) for row in mine],
        "y": [_digits((row.predicted or 0) / 1e3 * factor) for row in mine],
        "text": [tables.name(row.metric) for row in mine],
        "hovertemplate": f"%{{text}}<br>measured %{{x:.4g}} {unit}<br>predicted %{{y:.4g}} {unit}<extra>{of}</extra>",
    }


def _markers(name: str, k: int, opacity: float = 0.9) -> dict[str, Any]:
    marker = {"color": PALETTE[k % 6], "symbol": SYMBOLS[k % 6], "size": 7, "opacity": opacity}
    return {"type": "scatter", "mode": "markers", "name": name, "marker": marker}


def _diagonal(low: float, high: float) -> dict[str, Any]:
    line = {"color": INK, "dash": "dash", "width": 1}
    return {
        "type": "scatter", "mode": "lines", "x": [low, high], "y": [low, high], "line": line, "name": "equal",
        "hoverinfo": "skip",
    }  # fmt: skip


def _band(low: float, high: float, floor: float, log: bool) -> dict[str, Any]:
    """Where a prediction lies that is off by no more than repeats are."""
    below, above = max(1 - floor, 0.01 if log else 0.0), 1 + floor
    return {
        "type": "scatter", "mode": "lines", "fill": "toself", "line": {"width": 0, "color": PALE},
        "x": [low, high, high, low], "y": [low * below, high * below, high * above, low * above],
        "fillcolor": faint(GREY, 0.22), "name": f"noise, ± {tables.percent(floor)}", "hoverinfo": "skip",
    }  # fmt: skip


def _noise(found: Validation, metric: str) -> float | None:
    """What repeats differ by: of points, or of the mean."""
    of_mean = [row.noise for row in found.rows if row.metric == f"mean_{metric}_ms" and row.noise is not None]
    return found.noise.get(metric, max(of_mean, default=None))


def _outside(drawn: Sequence[dict[str, Any]], floor: float | None) -> str:
    pairs = [pair for trace in drawn for pair in zip(trace["x"], trace["y"], strict=True) if pair[0]]
    errors = sorted(abs(y / x - 1) for x, y in pairs)
    said = f": half are off by less than {tables.percent(errors[len(errors) // 2])}"
    if floor is None:
        return said
    inside = sum(error <= floor for error in errors) / len(errors)
    return f"{said}, and {tables.percent(inside)} by no more than repeats differ"


def errors(found: Validation) -> Figure:
    """Signed relative errors, a line a figure and a dot a load or group, each on the band that its repeats fill."""
    if not found.rows:
        return notice("This validation has no figures.")
    names = list(dict.fromkeys(row.metric for row in found.rows))
    groups = list(dict.fromkeys(row.of for row in found.rows))
    at = {
        (metric, of): i + 0.0 if len(groups) == 1 else i + (k - (len(groups) - 1) / 2) * 0.8 / len(groups)
        for i, metric in enumerate(names)
        for k, of in enumerate(groups)
    }
    data = [_floors(found.rows, at)]
    for k, of in enumerate(groups):
        mine = [row for row in found.rows if row.of == of]
        data.append(
            _markers(of or "error", k)
            | {
                "x": [_digits(row.error * 100) for row in mine],
                "y": [at[row.metric, of] for row in mine],
                "text": [_said(row) for row in mine],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    most = max(max(abs(row.error), row.noise or 0.0) for row in found.rows) * 115
    limits = [upright(side * TOLERANCE * 100, GREY) for side in (-1, 1)] if found.kind != "points" else []
    ticks = {"tickvals": list(range(len(names))), "ticktext": [tables.name(name) for name in names]}
    worst = max(found.rows, key=lambda row: abs(row.error))
    alt = (
        f"Signed errors of {len(found.rows)} figures; the largest is {tables.name(worst.metric)} "
        f"{tables.percent(worst.error, signed=True)}{f' ({worst.of})' if worst.of else ''}."
    )
    figure: Figure = {
        "data": data,
        "layout": layout(
            110 + 16 * len(groups) + round(ROW * len(names) * max(1.0, len(groups) * 0.75)),
            alt,
            xaxis=axis(
                "predicted / measured - 1 (%)", range=[-most, most], zeroline=True, zerolinecolor=INK, zerolinewidth=1
            ),
            yaxis=axis("", range=[len(names) - 0.4, -0.6], **ticks),
            shapes=limits,
            margin={"l": 8, "r": 12, "t": 40, "b": 8},
        ),
    }
    return figure


def _floors(rows: Sequence[Row], at: dict[tuple[str, str], float]) -> dict[str, Any]:
    x: list[float | None] = []
    y: list[float | None] = []
    for row in rows:
        if row.noise is not None:
            x += [_digits(-row.noise * 100), _digits(row.noise * 100), None]
            y += [at[row.metric, row.of], at[row.metric, row.of], None]
    return {
        "type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": PALE, "width": 7}, "name": "noise of repeats",
        "hoverinfo": "skip",
    }  # fmt: skip


def _said(row: Row) -> str:
    said = f"{row.of + ': ' if row.of else ''}{tables.name(row.metric)} {tables.percent(row.error, signed=True)}"
    if row.size is not None:
        said += f"<br>mean size {tables.percent(row.size)} over {row.points:,} points"
    if row.measured is not None:
        said += f"<br>measured {tables.number(row.measured)}, predicted {tables.number(row.predicted)}"
    return said + (f"<br>repeats differ by {tables.percent(row.noise)}" if row.noise is not None else "")


def ranking(found: Validation) -> Figure:
    """Policies in their measured order: each repeat, and the prediction beside it."""
    ranked = found.ranking
    if ranked is None:
        return notice(found.absent.get("ranking", "Policies were not ranked in this validation."))
    order = sorted(ranked.variants, key=lambda variant: variant.mean)
    predicted = sorted(order, key=lambda variant: variant.predicted)
    names = [variant.name.replace(", ", "<br>") for variant in order]
    repeats: dict[str, Any] = {
        "x": [_digits(value) for variant in order for value in variant.measured],
        "y": [i for i, variant in enumerate(order) for _ in variant.measured],
    }
    places = [f"{i + 1}. measured, {predicted.index(variant) + 1}. predicted" for i, variant in enumerate(order)]
    tau = (
        ""
        if ranked.kendall_tau is None
        else f"Kendall's tau {tables.number(ranked.kendall_tau)} over {counted(ranked.pairs, 'pair')}"
    )
    said = tau or "No two policies differ by more than their noise"
    return {
        "data": [
            _markers("measured", 0) | repeats | {"hovertemplate": "measured %{x:.4g} ms<extra></extra>"},
            _markers("predicted", 1)
            | {
                "x": [_digits(variant.predicted) for variant in order],
                "y": list(range(len(order))),
                "text": places,
                "marker": {"color": RED, "symbol": "diamond-open", "size": 12, "line": {"width": 2}},
                "hovertemplate": "predicted %{x:.4g} ms<br>%{text}<extra></extra>",
            },
        ],
        "layout": layout(
            120 + 44 * len(order),
            f"{len(order)} policies by {tables.name(ranked.by)}, measured and predicted. {said}.",
            xaxis=axis(f"{tables.label(ranked.by)}<br>{said}", rangemode="tozero"),
            yaxis=axis(
                "", tickvals=list(range(len(order))), ticktext=names, range=[len(order) - 0.5, -0.5]
            ),
            margin={"l": 8, "r": 12, "t": 40, "b": 8},
        ),
    }  # fmt: skip


def _digits(value: float) -> float:
    return float(f"{value:.5g}")


def worst_table(found: Validation) -> Table:
    """The figures that are farthest off."""
    rows = [(w.where, w.figure, tables.percent(w.error, signed=True), tables.percent(w.noise)) for w in found.worst]
    return Table("Worst cells", ("where", "figure", "error", "noise"), rows, "Half is as far off as double.")


def rows_table(found: Validation) -> Table:
    """Every figure."""
    several = any(row.of for row in found.rows)
    rows = [
        (
            f"{row.of}: {tables.label(row.metric)}" if several else tables.label(row.metric),
            tables.number(row.measured),
            tables.number(row.predicted),
            tables.percent(row.error, signed=True),
            tables.percent(row.noise),
            row.verdict or tables.DASH,
        )
        for row in found.rows
    ]
    return Table("Figures", ("", "measured", "predicted", "error", "noise", "verdict"), rows)


def facts_table(found: Validation) -> Table:
    """What lies below the outcome."""
    return Table("Layers below", ("", ""), found.facts)
