"""Cost against the tail of latency, as a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from studies import figures
from studies.capacity.cheapest import PER_HOUR, Cheapest, Judged, pareto
from studies.figures.alt_text import counted, number
from studies.reports import tables

_TAIL = "p99_ttft_ms"


def tail(found: Cheapest) -> str:
    """The latency that stands beside cost: of the first objective about a percentile, or p99 of TTFT."""
    return next((str(o) for o in found.objectives if o.percentile is not None), _TAIL)


def tail_label(found: Cheapest) -> str:
    """The same for people: `p99 TTFT (ms)`."""
    return tables.label(next((o.key for o in found.objectives if str(o) == tail(found)), _TAIL))


def unit(found: Cheapest) -> str:
    """What is to be least, in words: `USD an hour`, `USD per 1m output tokens`."""
    return "USD an hour" if found.by == PER_HOUR else tables.label(found.by).replace("usd", "USD")


def figure(found: Cheapest) -> figures.Figure:
    """Cost against the tail of latency: a dot a configuration that was run, and the line of those that no other one beats."""
    key, label = tail(found), tail_label(found)
    front = pareto(found.judged, key)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "Pareto set",
            "x": [j.usd for j in front],
            "y": [j.figure(key) for j in front],
            "line": {"color": figures.GREY, "width": 1.5, "dash": "dot", "shape": "hv"},
            "hoverinfo": "skip",
        }
    ]
    looks = {
        "met": (figures.GREEN, "circle"),
        "not decided": (figures.ORANGE, "diamond"),
        "not confirmed": (figures.ORANGE, "diamond-open"),
        "not met": (figures.RED, "x"),
    }
    for outcome, (color, symbol) in looks.items():
        shown = [j for j in found.of(outcome) if j.figure(key) is not None and j.usd < float("inf")]
        if shown:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": outcome,
                    "x": [j.usd for j in shown],
                    "y": [j.figure(key) for j in shown],
                    "text": [j.candidate.name for j in shown],
                    "marker": {"color": color, "symbol": symbol, "size": 10},
                    "hovertemplate": "%{text}<br>%{x:.4g} USD<br>%{y:.4g}<extra>" + outcome + "</extra>",
                }
            )
    seen = [value for trace in data for value in trace["y"]]
    wide = bool(seen) and max(seen) > 30 * min(seen)  # else one decade has no tick but its own
    drawn: figures.Figure = {
        "data": data,
        "layout": figures.layout(
            400,
            _said(found, front, key, label),
            xaxis=figures.axis(unit(found), rangemode="tozero"),
            yaxis=figures.axis(label, type="log", **({"dtick": 1} if wide else {})),
        ),
    }
    best = found.best
    value = None if best is None else best.figure(key)
    if best is not None and value is not None:
        drawn["layout"]["annotations"] = [
            {
                "x": best.usd,
                "y": math.log10(value),
                "text": "cheapest",  # its name is in the sentence above; along a figure there is no room for it
                "showarrow": False,
                "yanchor": "top",
                "yshift": -7,
            }
        ]
    limit = next((o.limit * 1e3 for o in found.objectives if str(o) == key), None)
    if limit is not None:
        drawn["layout"].setdefault("annotations", []).append(
            {
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": math.log10(limit),
                "yanchor": "bottom",
                "text": key,
                "showarrow": False,
            }
        )
        line = {"color": figures.INK, "dash": "dash", "width": 1}
        drawn["layout"]["shapes"] = [
            {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": limit, "y1": limit, "line": line}
        ]
    return drawn


def _said(found: Cheapest, front: Sequence[Judged], key: str, label: str) -> str:
    """The cheapest, and the line that it lies on."""
    line = "; ".join(
        f"{j.candidate.name} ({number(j.usd)} USD, {number(value)})"
        for j in front
        if (value := j.figure(key)) is not None
    )
    best = (
        f"Cheapest that meets every objective: {found.best.candidate.name}."
        if found.best
        else "None meets every objective."
    )
    each = counted(len(found.judged), "configuration")
    return f"{label} against {unit(found)} of {each}. {best} No other beats: {line or 'none'}."
