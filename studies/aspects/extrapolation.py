"""By how much a run leaves what its profile was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from calibration.features import steps_to_shapes
from serving.records import Records
from sim.cost import CostModel
from sim.operator_cost import OperatorCost
from sim.profile_cost import ProfileCost

STEPS = 4000  # looked at, at equal distances


def extrapolation(records: Records, cost: CostModel | None) -> dict[str, Any] | None:
    """How much lies outside the measured domain, JSON-able; None where nothing was measured or nothing ran.

    steps, time: shares of the steps and of their time. parts: of each part of a shape that is outside somewhere, the `value` farthest
    out, what was `measured` nearest to it, and the `factor` between them, largest first.
    """
    steps = records.steps
    count = len(steps["step"])
    if not count or not isinstance(cost, (ProfileCost, OperatorCost)):
        return None
    rows = np.unique(np.linspace(0, count - 1, min(count, STEPS)).round().astype(np.int64))
    taken = (steps["end_ns"] - steps["start_ns"])[rows].astype(np.float64)
    found = [cost.outside(shape) for shape in steps_to_shapes({name: column[rows] for name, column in steps.items()})]
    out = np.array([bool(parts) for parts in found])
    farthest: dict[str, Any] = {}
    for part in (part for parts in found for part in parts):
        if part.part not in farthest or part.factor > farthest[part.part].factor:
            farthest[part.part] = part
    return {
        "steps": float(out.mean()),
        "time": float((taken * out).sum() / max(taken.sum(), 1.0)),
        "parts": [
            {
                "part": part.part,
                "value": float(part.value),
                "measured": float(part.high if part.value > part.high else part.low),
                "factor": float(part.factor),
            }
            for part in sorted(farthest.values(), key=lambda part: -part.factor)
        ],
    }


def sentence(found: Mapping[str, Any] | None) -> str | None:
    """The same in words; None where nothing is outside."""
    if not found or not found["steps"]:
        return None
    parts = [
        f"{part['part'].replace('_', ' ')} {part['value']:,.0f} where {part['measured']:,.0f} "
        f"{'is the most' if part['value'] > part['measured'] else 'is the least'} measured ({part['factor']:.1f}x)"
        for part in found["parts"]
    ]
    return (
        f"{_share(found['time'])} of busy time and {_share(found['steps'])} of steps are outside what was measured: "
        f"{'; '.join(parts)}"
    )


def _share(share: float) -> str:
    return "less than 0.1%" if 0 < share < 0.001 else f"{share:.1%}"
