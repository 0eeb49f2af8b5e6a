"""How a simulation agrees with an execution, request by request."""

from __future__ import annotations

import numpy as np

from serving.metrics import by_request
from serving.records import Records
from studies.figures.alt_text import counted, number
from studies.figures.latency import LATENCY_AXES
from studies.figures.series import POINTS, Array, numbers
from studies.figures.style import BLUE, GREY, Figure, axis, layout


def predicted_against_measured(
    predicted: Records, measured: Records, metric: str = "e2el", points: int = POINTS
) -> Figure:
    """One dot a request that finished in both runs: executed on x, simulated on y, the diagonal is agreement."""
    title, unit, factor = LATENCY_AXES[metric]
    x, y = by_request(measured, metric) * factor, by_request(predicted, metric) * factor
    rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    alt = f"{title} of {counted(len(rows), 'request')}, simulated against executed{_apart(x[rows], y[rows])}."
    if len(rows) > points:
        rows = rows[np.linspace(0, len(rows) - 1, points).astype(np.int64)]
    x, y = x[rows], y[rows]
    top = float(max(x.max(initial=0), y.max(initial=0))) * 1.05 or 1.0
    diagonal = {"type": "scatter", "mode": "lines", "x": [0, top], "y": [0, top], "name": "equal"}
    return {
        "data": [
            diagonal | {"line": {"color": GREY, "dash": "dash", "width": 1}, "hoverinfo": "skip"},
            {
                "type": "scatter",
                "mode": "markers",
                "name": "request",
                "x": numbers(x),
                "y": numbers(y),
                "text": [f"request {i}" for i in rows.tolist()],
                "customdata": [[i] for i in rows.tolist()],
                "marker": {"color": BLUE, "size": 6, "opacity": 0.55},
                "hovertemplate": f"%{{text}}<br>executed %{{x:.4g}} {unit}<br>simulated %{{y:.4g}} {unit}<extra></extra>",
            },
        ],
        "layout": layout(
            340,
            alt,
            showlegend=False,
            xaxis=axis(f"{title}, executed ({unit})", range=[0, top]),
            yaxis=axis(f"{title}, simulated ({unit})", range=[0, top]),
        ),
    }


def _apart(x: Array, y: Array) -> str:
    """By how much the two differ, where anything was executed."""
    there = x > 0
    if not there.any():
        return ""
    apart = 100 * np.abs(y[there] / x[there] - 1)
    if not apart.any():
        return ": all are the same"
    half, most = (number(v) for v in np.percentile(apart, (50, 95)))
    return f": half of them differ by less than {half} %, 95 % by less than {most} %"
