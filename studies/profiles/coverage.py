"""How far a run stays inside what its profile was measured on, part by part of a step's shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.features import steps_to_shapes
from serving.plan import StepShape
from serving.records import Records
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.profile_cost import ProfileCost
from studies.aspects import extrapolation
from studies.figures.notice import notice
from studies.figures.style import BLUE, PALE, RED, Figure, axis, layout
from studies.figures.ticks import log_ticks
from studies.profiles.sheet import SPANS
from studies.reports.tables import Table, number, percent

OUTSIDE_NAMES = {
    "tokens": "tokens",
    "prefill query": "prefill_query",
    "prefill context": "prefill_context",
    "decode_sequences": "decode_sequences",
    "decode_context": "decode_context",
    "mean decode context": "decode_context",
    "sampled": "sampled",
}
"""Parts as a cost model names them, by field of a domain."""


@dataclass(frozen=True)
class Part:
    """One part of a step's shape. low, high: measured. least, most: of the run, None where it has none. outside: share of its steps."""

    name: str
    low: float
    high: float
    least: float | None
    most: float | None
    outside: float


@dataclass(frozen=True)
class Coverage:
    """parts: in the order of a domain. steps, time: shares of the run's steps, and of their time, that lie outside somewhere."""

    profile: str
    parts: tuple[Part, ...]
    steps: float
    time: float

    @property
    def sentence(self) -> str:
        if not self.steps:
            return "Every step of the run lies inside what was measured."
        return (
            f"{percent(self.time)} of busy time and {percent(self.steps)} of steps lie outside what was measured; there the profile "
            "extrapolates."
        )


def coverage(records: Records, cost: CostModel | None) -> Coverage | None:
    """Of a run with the step costs that it was simulated with; None where nothing was measured or nothing ran."""
    found = extrapolation.extrapolation(records, cost)
    if found is None or not isinstance(cost, (ProfileCost, OperatorCost)):
        return None
    steps = records.steps
    count = len(steps["step"])
    rows = np.unique(np.linspace(0, count - 1, min(count, extrapolation.STEPS)).round().astype(np.int64))
    shapes = steps_to_shapes({name: column[rows] for name, column in steps.items()})
    beyond: dict[str, int] = dict.fromkeys(SPANS, 0)
    for shape in shapes:
        for field in {OUTSIDE_NAMES.get(part.part, "") for part in cost.outside(shape)} & set(SPANS):
            beyond[field] += 1
    parts = []
    for field, values in _values(isinstance(cost, OperatorCost)).items():
        span = getattr(cost.profile.domain, field)
        seen = [value for shape in shapes for value in values(shape)]
        least, most = (min(seen), max(seen)) if seen else (None, None)
        parts.append(Part(SPANS[field], span.min, span.max, least, most, beyond[field] / len(shapes)))
    return Coverage(cost.profile.name, tuple(parts), float(found["steps"]), float(found["time"]))


def _values(mean: bool) -> dict[str, Callable[[StepShape], list[float]]]:
    """What a shape has of each part of a domain; mean: whether that counts the mean context of decodes, not their sum."""

    def context(shape: StepShape) -> list[float]:
        if not shape.decode_sequences:
            return []
        return [shape.decode_context / shape.decode_sequences if mean else shape.decode_context]

    return {
        "tokens": lambda shape: [shape.tokens] if shape.tokens else [],
        "prefill_query": lambda shape: [query for query, _ in shape.prefill],
        "prefill_context": lambda shape: [before for _, before in shape.prefill],
        "decode_sequences": lambda shape: [shape.decode_sequences] if shape.decode_sequences else [],
        "decode_context": context,
        "sampled": lambda shape: [shape.sampled] if shape.sampled else [],
    }


def figure(found: Coverage | None) -> Figure:
    """What was measured as a pale bar, what the run asks for as a line on it; beyond the bar it is extrapolated."""
    if found is None:
        return notice(
            "Step costs of this run are not measured ones (a roofline, or recorded durations), so they have no domain."
        )
    data: list[dict[str, Any]] = [_bars(found, "measured", PALE, 14, lambda part: (part.low, part.high))]
    data.append(_bars(found, "the run, inside", BLUE, 6, _inside))
    data.append(_bars(found, "the run, outside", RED, 6, lambda part: (part.high, part.most) if _above(part) else None))
    data.append(
        _bars(found, "the run, outside", RED, 6, lambda part: (part.least, part.low) if _below(part) else None)
        | {"showlegend": False}
    )
    names = [part.name for part in found.parts]
    most = max(value for trace in data for value in trace["x"] if value is not None)
    return {
        "data": [trace for trace in data if trace["x"]],
        "layout": layout(
            110 + 34 * len(names),
            f"What the run asks for beside what profile {found.profile} was measured on. {found.sentence}",
            xaxis=axis("tokens or sequences", range=[0, math.log10(most) + 0.1], **(log_ticks(1.0, most) | _short(most))),
            yaxis=axis("", tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5]),
            margin={"l": 8, "r": 12, "t": 40, "b": 8},
        ),
    }  # fmt: skip


def _short(most: float) -> dict[str, Any]:
    """Powers of ten that a telephone has room for; nothing at all stands at the left end."""
    values = [10**k for k in range(math.floor(math.log10(most)) + 1)]
    return {"tickvals": values, "ticktext": [f"{v // 1000}k" if v >= 1000 else str(v) for v in values], "tickangle": 0}


def _above(part: Part) -> bool:
    return part.most is not None and part.most > part.high


def _below(part: Part) -> bool:
    """Of zero nothing is extrapolated, but for what every step or chunk has at least one of."""
    return part.least is not None and 0 < part.least < part.low and part.outside > 0


def _inside(part: Part) -> tuple[float, float] | None:
    if part.least is None or part.most is None:
        return None
    low, high = max(part.least, part.low), min(part.most, part.high)
    return (low, high) if low <= high else None


def _bars(
    found: Coverage, name: str, color: str, width: int, ends: Callable[[Part], tuple[float | None, float | None] | None]
) -> dict[str, Any]:
    """A thick line for each part that has it, all in one trace."""
    x: list[float | None] = []
    y: list[int | None] = []
    said: list[str] = []
    for i, part in enumerate(found.parts):
        pair = ends(part)
        if pair is None or pair[0] is None or pair[1] is None:
            continue
        low, high = (max(1.0, float(f"{value:.5g}")) for value in (pair[0], pair[1]))
        x += [low, max(high, low * 1.03), None]
        y += [i, i, None]
        said += [f"{part.name}: {name}, {number(pair[0])} to {number(pair[1])}"] * 2 + [""]
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "text": said, "line": {"color": color, "width": width},
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip


def table(found: Coverage) -> Table:
    """The same as figures."""
    rows = [
        (part.name, f"{number(part.low)} to {number(part.high)}", _span(part), percent(part.outside))
        for part in found.parts
    ]
    return Table("Inside what was measured", ("", "measured", "this run", "steps outside"), rows, found.sentence)


def _span(part: Part) -> str:
    if part.least is None or part.most is None:
        return "none"
    return f"{number(part.least)} to {number(part.most)}"
