"""The mean of values that follow one another in one run, which are alike: batches long enough to be independent."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from serving.samples import effective_samples
from studies.statistics import intervals
from studies.statistics.intervals import CONFIDENCE, Interval

BATCHES = (30, 20, 10)
"""Numbers of batches that are tried: more than 30 gain little, fewer than 10 say little (Schmeiser 1982)."""
INDEPENDENT = 5
"""Independent values that a batch must be worth: of shorter ones the test below sees too little, and intervals come out too narrow."""
LEVEL = 0.1
"""Chance with which batches that are independent are taken for correlated."""


def batch_means(values: ArrayLike, confidence: float = CONFIDENCE, *, most: int = BATCHES[0]) -> Interval:
    """Mean of a stationary series in order of time, `(n,)`, with Student's t interval of its batches' means; n: batches.

    As many batches as are worth `INDEPENDENT` values each and do not follow one another: the lag-1 correlation of their means, as von
    Neumann's ratio has it (Fishman 1978), is no greater than it would be by chance. What correlation is left widens the interval as
    that of an AR(1) process does. Refused where even the fewest follow one another. most: batches that the caller allows.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    intervals.check_confidence(confidence)
    x = np.asarray(values, dtype=np.float64)
    if len(x) and np.ptp(x) <= 1e-9 * abs(x[0]):
        return Interval(float(x[0]), confidence=confidence, refused=f"the same throughout {len(x):,} values")
    worth = effective_samples(x)
    if worth < INDEPENDENT * BATCHES[-1]:
        why = f"{len(x):,} values, worth {worth:.0f} independent ones; batches need {INDEPENDENT * BATCHES[-1]}"
        return Interval(float(x.mean()) if len(x) else None, confidence=confidence, refused=why)
    for k in BATCHES:
        if k <= most and worth >= INDEPENDENT * k:
            means = x[len(x) % k :].reshape(k, -1).mean(axis=1)  # what is left over is cut at the beginning
            if not correlated(means):
                return _widened(means, confidence)
    why = f"the means of {BATCHES[-1]} batches of {len(x) // BATCHES[-1]:,} values still follow one another"
    return Interval(float(x.mean()), confidence=confidence, refused=why)


def _widened(means: NDArray[np.float64], confidence: float) -> Interval:
    found = intervals.mean(means.tolist(), confidence)
    left = max(0.0, lag1(means))
    half = (found.half_width or 0.0) * math.sqrt((1 + left) / (1 - left))
    centre = float(means.mean())
    return Interval(centre, centre - half, centre + half, len(means), confidence)


def correlated(means: NDArray[np.float64], level: float = LEVEL) -> bool:
    """Whether each follows the one before it, more than independent ones do but with chance `level`."""
    k = len(means)
    return lag1(means) > NormalDist().inv_cdf(1 - level) * math.sqrt((k - 2) / (k * k - 1))


def lag1(means: NDArray[np.float64]) -> float:
    """Correlation of neighbours: 1 less half of von Neumann's ratio. 0 where there is no spread."""
    spread = float(((means - means.mean()) ** 2).sum())
    if spread <= 1e-18 * float((means**2).sum()):
        return 0.0
    return 1 - float((np.diff(means) ** 2).sum()) / (2 * spread)
