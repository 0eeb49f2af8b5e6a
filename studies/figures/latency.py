"""How latencies of requests are distributed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.metrics import SLO, latencies
from serving.records import Records
from serving.samples import effective_samples, percentile, samples_needed
from studies.figures.alt_text import duration, number
from studies.figures.series import Array, cumulative, numbers
from studies.figures.style import AROUND, DASHES, FAR, GREY, PALETTE, Figure, axis, in_ratios, layout, measured, upright

LATENCY_AXES = {  # metric -> (title, unit, factor from seconds)
    "ttft": ("Time to first token", "s", 1.0),
    "tpot": ("Time per output token", "ms", 1e3),
    "e2el": ("End-to-end latency", "s", 1.0),
    "queue": ("Queue time", "s", 1.0),
}
SLO_FIELD = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}


def latency_cdf(
    metric: str, runs: Mapping[str, Records], slo: SLO | None = None, baseline: str | None = None
) -> Figure:
    """CDF of `ttft`, `tpot`, `e2el` or `queue` of one or several runs, the SLO as a vertical line.

    baseline: the run that the others are held against, if any: it is drawn behind them, in grey.
    """
    title, unit, factor = LATENCY_AXES[metric]
    limit = getattr(slo, SLO_FIELD.get(metric, ""), None) if slo is not None else None
    at = None if limit is None else limit * factor
    data: list[dict[str, Any]] = []
    behind: list[dict[str, Any]] = []
    told: list[str] = []
    log, k, longest = False, 0, 0.0
    for name, records in runs.items():
        values = latencies(records)[metric] * factor
        held = name == baseline and len(runs) > 1
        if not held:
            color, dash, k = PALETTE[k % 6], DASHES[k % 6], k + 1
        if not len(values):
            continue
        longest = max(longest, float(values.max()))
        log |= bool(values.max() > FAR * np.median(values) > 0)
        x, share = cumulative(values)
        line = {"color": GREY, "width": 1.5, "dash": "dash"} if held else {"color": color, "width": 2, "dash": dash}
        (behind if held else data).append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "legendrank": 1001 if held else 1000,  # drawn first, named last
                "x": numbers(x),
                "y": numbers(share * 100),
                "line": line | {"shape": "hv"},
                "hovertemplate": f"%{{y:.1f}} % within %{{x:.4g}} {unit}<extra>{name}</extra>",
            }
        )
        told.append(_told(name, values / factor, limit))
    data = behind + data
    said = "; ".join(told) or "nobody has one"
    figure: Figure = {
        "data": data,
        "layout": layout(
            alt=f"Cumulative distribution of {title[0].lower()}{title[1:]} over requests. {said}.",
            xaxis=(axis if log else measured)(f"{title} ({unit})", **in_ratios(log)),  # long labels may turn
            yaxis=measured("Requests (%)", range=[0, 101]),
            margin=dict(AROUND),
            showlegend=len(data) > 1,
        ),
    }
    if len(data) > 1:  # two lines above the plot: the legend, and below it the SLO
        figure["layout"]["margin"]["t"] = 52
        figure["layout"]["legend"]["y"] = 1.1
    if at is not None:
        where = float(np.log10(at)) if log else at
        figure["layout"]["shapes"] = [upright(at, width=2)]
        at_the_edge = not log and at < longest / 8  # in the middle of the line it would cover the axis' 100
        figure["layout"]["annotations"] = [
            {
                "x": where,
                "xanchor": "left" if at_the_edge else "center",
                "y": 1,
                "yref": "paper",
                "yanchor": "bottom",
                "text": f"SLO {at:g} {unit}",
                "showarrow": False,
            }
        ]
    return figure


def _told(name: str, seconds: Array, limit: float | None) -> str:
    """A run in words; of its tail what `serving.metrics` would state: what the sample is large enough for."""
    said = [f"half within {duration(float(np.median(seconds)))}"]
    for p in (95.0, 99.0):
        value = percentile(seconds, p)
        if effective_samples(seconds > value) >= samples_needed(p):
            said.append(f"{p:g} % within {duration(value)}")
    if len(said) < 3:
        said.append(f"all within {duration(float(seconds.max()))}")
    if limit is not None:
        good = 100 * float(np.mean(seconds <= limit))
        said.append(f"{number(good if good == 100 else min(good, 99.9))} % within the SLO of {duration(limit)}")
    return f"{name}: {', '.join(said)}"
