"""Series of numbers as figures hold them: few points, few digits, every extreme."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

POINTS = 2000


def numbers(values: Array) -> list[float]:
    """Five significant digits are more than a screen shows, and a quarter of the bytes."""
    return [float(f"{v:.5g}") for v in values.tolist()]


def thin(x: Array, y: Array, points: int = POINTS) -> tuple[Array, Array]:
    """At most about `points` of a series: the least and the greatest of each of points / 2 stretches, in order."""
    n = len(x)
    if n <= points:
        return x, y
    edges = np.linspace(0, n, points // 2, dtype=np.int64)
    keep = {0, n - 1}
    for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = y[lo:hi]
        keep.update((lo + int(part.argmin()), lo + int(part.argmax())))
    rows = np.array(sorted(keep))
    return x[rows], y[rows]


def cumulative(values: Array, points: int = 600) -> tuple[Array, Array]:
    """Empirical CDF: sorted values and the share of requests at or below each, ends and tails kept."""
    x = np.sort(values)
    share = np.arange(1, len(x) + 1) / max(len(x), 1)
    if len(x) > points:
        body = np.linspace(0, len(x) - 1, points - 100).astype(np.int64)
        rows = np.unique(np.concatenate([body, np.arange(len(x) - 100, len(x))]))
        x, share = x[rows], share[rows]
    return x, share


def line(x: Array, y: Array, name: str, color: str, on: str, dash: str = "solid", shape: str = "hv") -> dict[str, Any]:
    """A thin line on the axis `on`; shape: `hv` for a level that holds until the next point."""
    x, y = thin(x, y)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": numbers(x),
        "y": numbers(y),
        "yaxis": on,
        "line": {"color": color, "width": 1.5, "dash": dash, "shape": shape},
    }
