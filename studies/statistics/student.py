"""Student's t without SciPy, whose statistics take longer to import than most runs take: every report of a run has an interval."""

from __future__ import annotations

import math
from functools import cache


@cache
def quantile(confidence: float, freedom: int) -> float:
    """The t that a variable of so many degrees of freedom exceeds in absolute value with chance 1 - confidence.

    Bisection of the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4, exact to rounding.
    """
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        if _within(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _within(angle: float, freedom: int) -> float:
    """Chance that |t| is below tan(angle) * sqrt(freedom)."""
    sin, cos = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cos if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cos * cos * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sin * total) if odd else sin * total
