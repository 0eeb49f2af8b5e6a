"""Confidence intervals of what was measured several times independently: Student's t on one value a replication."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studies.statistics import student

CONFIDENCE = 0.95
FEWEST = 5
"""Replications below which no interval is given."""


@dataclass(frozen=True)
class Interval:
    """An estimate and where the true value lies with a stated confidence.

    low, high: None where the sample cannot carry an interval; `refused` then says why. n: independent values behind it.
    """

    estimate: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    confidence: float = CONFIDENCE
    refused: str = ""

    @property
    def half_width(self) -> float | None:
        """Half of the distance between the ends."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def to_dict(self) -> dict[str, float | int | str | None]:
        found = {
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "confidence": self.confidence,
        }
        return found | ({"refused": self.refused} if self.refused else {})


def mean(values: Sequence[float | None], confidence: float = CONFIDENCE, fewest: int = FEWEST) -> Interval:
    """Mean of independent values, one a replication, with Student's t interval; None where a replication has no value.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    check_confidence(confidence)
    x = np.array([v for v in values if v is not None], dtype=np.float64)
    n = len(x)
    if n < len(values):
        missing = len(values) - n
        why = f"{missing} of {len(values)} replications have no value"
        return Interval(float(x.mean()) if n else None, n=n, confidence=confidence, refused=why)
    if n < fewest:
        estimate = float(x.mean()) if n else None
        return Interval(estimate, n=n, confidence=confidence, refused=f"{n} replications; an interval needs {fewest}")
    centre = float(x.mean())
    half = half_width(float(x.std(ddof=1)), n, confidence)
    return Interval(centre, centre - half, centre + half, n, confidence)


def half_width(deviation: float, n: int, confidence: float) -> float:
    """Half the width of Student's t interval of a mean. deviation: of the sample (n - 1 degrees of freedom)."""
    return student.quantile(confidence, n - 1) * deviation / math.sqrt(n)


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: found {confidence!r}, but it lies between 0 and 1, such as 0.95")
