"""What is left of single requests and points when the prediction is taken away: a pure function from a validation to a figure."""

from __future__ import annotations

import numpy as np

from studies.figures import LATENCY_AXES, POINTS
from studies.figures.notice import notice
from studies.figures.style import GREY, INK, PALETTE, Figure, axis, faint, far_apart, layout
from studies.figures.ticks import log_ticks
from studies.reports.tables import percent
from studies.validations.figures import SYMBOLS
from studies.validations.record import Validation


def residuals(found: Validation, metric: str) -> Figure:
    """Predicted / measured - 1 of each request or point over what was measured, in %: a slope is a missing term, a cloud is noise."""
    title, unit, factor = LATENCY_AXES[metric]
    groups = [points for points in found.points if points.metric == metric]
    if not groups:
        return notice(found.absent.get("points", f"This validation holds no single {title.lower()}."))
    floor = found.noise.get(metric)
    if floor is None:
        floor = max((r.noise for r in found.rows if r.metric == f"mean_{metric}_ms" and r.noise is not None), default=None)  # fmt: skip
    data, every = [], []
    for k, points in enumerate(groups):
        measured, predicted = np.array(points.measured), np.array(points.predicted)
        off = predicted / measured - 1
        every.append(off)
        thin = max(1, -(-len(off) // POINTS))
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": points.group or f"{points.each}s",
                "x": [float(f"{v * factor:.5g}") for v in measured[::thin]], "y": [float(f"{v * 100:.4g}") for v in off[::thin]],
                "marker": {"color": PALETTE[k % 6], "symbol": SYMBOLS[k % 6], "size": 6, "opacity": 0.55},
                "hovertemplate": f"measured %{{x:.4g}} {unit}<br>off by %{{y:.3g}} %<extra>{points.group}</extra>",
            }
        )  # fmt: skip
    off, along = np.concatenate(every), np.concatenate([np.array(p.measured) for p in groups]) * factor
    log = far_apart(along.tolist())
    ends = log_ticks(float(along.min()) / 1.15, float(along.max()) * 1.15) if log else {"rangemode": "tozero"}
    band = [] if floor is None else [
        {
            "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -floor * 100, "y1": floor * 100, "layer": "below",
            "line": {"width": 0}, "fillcolor": faint(GREY),
        }
    ]  # fmt: skip
    said = "" if floor is None else f"; {percent(float((np.abs(off) <= floor).mean()))} are within ± {percent(floor)}, by which repeats differ"  # fmt: skip
    alt = f"Relative errors of {len(off):,} {groups[0].each}s over their {title.lower()}: half lie between {percent(float(np.quantile(off, 0.25)), signed=True)} and {percent(float(np.quantile(off, 0.75)), signed=True)}{said}."  # fmt: skip
    return {
        "data": data,
        "layout": layout(
            340, alt, showlegend=True, shapes=band,
            xaxis=axis(f"{title}, measured ({unit})", **ends),
            yaxis=axis("predicted / measured - 1 (%)", zeroline=True, zerolinecolor=INK, zerolinewidth=1),
            margin={"l": 8, "r": 12, "t": 40, "b": 8},
        ),
    }  # fmt: skip
