"""How loaded the engine is over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from serving.records import Records
from studies.figures.alt_text import counted, duration, number
from studies.figures.series import Array, line, numbers
from studies.figures.style import AROUND, BLUE, GREEN, PINK, RED, Figure, layout, measured

BINS = 100
"""Bars of preemptions over the run."""


def load_over_time(records: Records, usable_blocks: int | None = None) -> Figure:
    """Requests running and waiting, KV memory in use, and preemptions where there are any, over time; summed over replicas.

    usable_blocks: KV blocks of a replica; KV memory is in percent of them, else in blocks.
    """
    at, (running, waiting, blocks) = _summed(records, ("running", "waiting", "kv_blocks"))
    replicas = max(1, len(np.unique(records.steps["replica"])))
    unit = "KV blocks"
    if usable_blocks:
        blocks, unit = blocks / (usable_blocks * replicas) * 100, "KV memory (%)"
    data = [
        line(at, running, "running", BLUE, "y"),
        line(at, waiting, "waiting", RED, "y", dash="dot"),
        line(at, blocks, unit, GREEN, "y2"),
    ]
    top = {"range": [0, 101]} if usable_blocks else {"rangemode": "tozero"}
    lost = preempted_at(records)
    alt = (
        f"Requests and KV memory over {number(float(at[-1]))} s. At most {number(running.max())} requests run and "
        f"{number(waiting.max())} wait; at most {number(blocks.max())}{' %' if usable_blocks else ''} of KV memory"
        f"{'' if usable_blocks else ' blocks'} in use; {counted(len(lost), 'preemption') if len(lost) else 'no preemptions'}."
        if len(at)
        else "Requests and KV memory over time: no step was run."
    )
    if not len(lost):
        return {
            "data": data,
            "layout": layout(
                380,
                alt,
                xaxis=measured("Time (s)", anchor="y2"),
                yaxis=measured("Requests", domain=[0.46, 1], rangemode="tozero"),
                yaxis2=measured(unit, domain=[0, 0.38], **top),
                margin=dict(AROUND),
            ),
        }
    bars = _counts(lost, float(at[0]), float(at[-1]))
    tick = {"tickformat": ",d"} if max(bars["y"]) < 10_000 else {}  # longer ones are abbreviated, as elsewhere
    return {
        "data": [*data, bars],
        "layout": layout(
            470,
            alt,
            xaxis=measured("Time (s)", anchor="y3"),
            yaxis=measured("Requests", domain=[0.57, 1], rangemode="tozero"),
            yaxis2=measured(unit, domain=[0.25, 0.51], **top),
            yaxis3=measured("Preempted", domain=[0, 0.19], rangemode="tozero", nticks=4, **tick),
            margin=dict(AROUND),
        ),
    }


def preempted_at(records: Records) -> Array:
    """When each preemption happened, in seconds, `(events,)`: at the start of the step that took the blocks."""
    rows, steps = records.preempted, records.steps
    if not len(rows):
        return np.empty(0)
    offset = np.searchsorted(
        steps["replica"], rows[:, 0]
    )  # replicas stand one after another; a step's number is its row
    at: Array = steps["start_ns"][offset + rows[:, 1]] / 1e9
    return at


def _counts(at: Array, first: float, last: float) -> dict[str, Any]:
    """How many preemptions each stretch of the run saw, a bar each."""
    width = (last - first) / BINS or 1.0
    which, counts = np.unique(np.minimum((at - first) // width, BINS - 1), return_counts=True)
    return {
        "type": "bar",
        "name": "preemptions",
        "x": numbers(first + (which + 0.5) * width),
        "y": counts.tolist(),
        "width": float(f"{width:.5g}"),
        "yaxis": "y3",
        "marker": {"color": PINK, "line": {"width": 1, "color": PINK}},
        "hovertemplate": f"%{{y}} preempted within {duration(width)}<extra></extra>",
    }


def _summed(records: Records, names: Sequence[str]) -> tuple[Array, list[Array]]:
    """Step columns as functions of the same times in seconds, summed over replicas, 0 while a replica is idle."""
    steps = records.steps
    # Replicas stand one after another.
    bounds = np.flatnonzero(np.diff(steps["replica"], prepend=-1, append=-1)).tolist()
    times: list[Array] = []
    changes: list[list[Array]] = [[] for _ in names]
    for first, last in pairwise(bounds):
        start, end = steps["start_ns"][first:last], steps["end_ns"][first:last]
        idle = np.flatnonzero(np.append(start[1:] > end[:-1], True))
        times.append(np.insert(start, idle + 1, end[idle]))
        for column, name in zip(changes, names, strict=True):
            column.append(np.diff(np.insert(steps[name][first:last], idle + 1, 0), prepend=0))
    if not times:
        return np.empty(0), [np.empty(0) for _ in names]
    at = np.concatenate(times)
    order = np.argsort(at, kind="stable")
    return at[order] / 1e9, [np.cumsum(np.concatenate(column)[order]) for column in changes]
