"""Intervals of a quantile from order statistics: of any distribution, by the binomial one alone (David and Nagaraja 2003, 7.1).

Each value lies below the quantile q with chance q, so how many do is binomial, and the interval runs between two values of the
sample. Values that are alike in order of time count for fewer: their ranks are those of a sample of as many independent ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from serving.samples import effective_samples
from studies.statistics import intervals
from studies.statistics.intervals import CONFIDENCE, Interval


def quantile(values: ArrayLike, p: float, *, independent: bool = True, confidence: float = CONFIDENCE) -> Interval:
    """Percentile p in (0, 100), linear between values, with the interval that order statistics give; n: independent values.

    values: `(n,)`; in order of time unless they are independent. As long as both sides can be cut alike, each has half of the risk;
    of a smaller sample one end is its least or greatest value, and the other side has what risk is left. Refused where even both
    would not do: of p95 below 59 independent values, of p99 below 299.

    Raises:
        ValueError: a percentile or a confidence out of its range.
    """
    if not 0 < p < 100:
        raise ValueError(f"percentile: found {p!r}, but it lies between 0 and 100")
    intervals.check_confidence(confidence)
    x = np.sort(np.asarray(values, dtype=np.float64))
    if not len(x):
        return Interval(None, confidence=confidence, refused="no values")
    estimate = float(np.percentile(x, p))
    # Of values that are alike, what must be independent is on which side of the quantile they lie.
    worth = len(x) if independent else int(effective_samples(np.asarray(values, dtype=np.float64) > estimate))
    ranks = _ranks(worth, p / 100, confidence)
    if ranks is None:
        of = "independent values" if independent else f"independent values, of {len(x):,},"
        return Interval(estimate, n=worth, confidence=confidence, refused=f"{worth:,} {of} hold no interval of p{p:g}")
    stretch = len(x) / worth
    low = max(1, int(np.floor(ranks[0] * stretch)) if stretch > 1 else ranks[0])
    high = min(len(x), int(np.ceil(ranks[1] * stretch)) if stretch > 1 else ranks[1])
    return Interval(estimate, float(x[low - 1]), float(x[high - 1]), worth, confidence)


def _ranks(n: int, q: float, confidence: float) -> tuple[int, int] | None:
    """Ranks, from 1, of the values of a sorted sample of n that hold quantile q between them; None where none do."""
    from scipy.stats import binom

    risk = 1 - confidence
    below, above = float(binom.pmf(0, n, q)), float(binom.pmf(n, n, q))  # all values on one side of the quantile
    if below + above > risk:
        return None
    half = risk / 2
    if above > half:
        low = int(binom.ppf(risk - above, n, q))
        return max(low, 1), n
    if below > half:
        return 1, int(binom.isf(risk - below, n, q)) + 1
    return int(binom.ppf(half, n, q)), int(binom.isf(half, n, q)) + 1
