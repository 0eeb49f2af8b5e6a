"""Curves over tokens: summing them, leaving out the points that lines tell anyway, and naming where they dip or leap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibration.operators.tables import Floats, Ints
from sim.operator_profile import Curve
from sim.profile_parts import Jump

LEAP = 0.2
"""A rise from one token to the next by more than this share of the sum is named."""


def at(curve: tuple[Ints, Floats], x: Floats) -> Floats:
    """Linear between the points, the last slope beyond them, flat below the first."""
    points, ns = curve
    y = np.interp(x, points, ns)
    if len(points) > 1:
        slope = max(0.0, float(ns[-1] - ns[-2]) / float(points[-1] - points[-2]))
        y = y + np.maximum(0.0, x - float(points[-1])) * slope
    return np.asarray(y, dtype=np.float64)


def add(curves: Sequence[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """Their sum at all points of all of them."""
    points = np.unique(np.concatenate([c[0] for c in curves]))
    return points, np.sum([at(c, points.astype(np.float64)) for c in curves], axis=0)


def thin(points: Ints, ns: Floats, tolerance: float) -> tuple[Ints, Floats]:
    """Fewer points: every point that is left out lies within `tolerance` of the lines between those that stay, relatively."""
    keep = [0]
    while keep[-1] < len(points) - 1:
        first = keep[-1]
        last = first + 1
        for end in range(first + 2, len(points)):
            inner = slice(first + 1, end)
            line = np.interp(points[inner], [points[first], points[end]], [ns[first], ns[end]])
            if np.any(np.abs(line - ns[inner]) > tolerance * ns[inner]):
                break
            last = end
        keep.append(last)
    return points[keep], ns[keep]


def to_curve(points: Ints, ns: Floats, tolerance: float) -> Curve:
    """Thinned, in whole nanoseconds."""
    points, ns = thin(points, ns, tolerance)
    return Curve(at=tuple(points.tolist()), ns=tuple(float(round(x)) for x in ns.tolist()))


def jumps(curves: Sequence[Curve]) -> tuple[Jump, ...]:
    """Where the sum falls, each fall from its top to its bottom, and where it leaps from one token to the next."""
    points, ns = add([(np.array(c.at, dtype=np.int64), np.array(c.ns)) for c in curves])
    found: list[Jump] = []
    i = 0
    while i < len(points) - 1:
        if ns[i + 1] < ns[i]:
            j = i + 1
            while j < len(points) - 1 and ns[j + 1] <= ns[j]:
                j += 1
            found.append(_jump("dip", points, ns, i, j))
            i = j
            continue
        if points[i + 1] == points[i] + 1 and ns[i + 1] - ns[i] > LEAP * ns[i]:
            found.append(_jump("step", points, ns, i, i + 1))
        i += 1
    return tuple(found)


def _jump(kind: str, points: Ints, ns: Floats, i: int, j: int) -> Jump:
    return Jump.model_validate(
        {
            "kind": kind,
            "tokens_from": int(points[i]),
            "tokens_to": int(points[j]),
            "ns": float(round(abs(ns[j] - ns[i]))),
        }
    )
