"""Intervals of a part of all, such as the good fraction (Clopper and Pearson 1934)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from serving.samples import effective_samples
from studies.statistics import intervals
from studies.statistics.intervals import CONFIDENCE, Interval


def proportion(which: ArrayLike, *, independent: bool = True, confidence: float = CONFIDENCE) -> Interval:
    """Part of values that are true, with the interval that holds it at least as often as stated, however near to 0 or 1.

    which: bool `(n,)`; in order of time unless they are independent, and then they count for as many as they are worth. n: those.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    from scipy.stats import beta

    intervals.check_confidence(confidence)
    x = np.asarray(which, dtype=bool)
    if not len(x):
        return Interval(None, confidence=confidence, refused="no values")
    share = float(x.mean())
    n = len(x) if independent else int(effective_samples(x))
    risk = (1 - confidence) / 2
    low = float(beta.ppf(risk, share * n, (1 - share) * n + 1)) if share > 0 else 0.0
    high = float(beta.isf(risk, share * n + 1, (1 - share) * n)) if share < 1 else 1.0
    return Interval(share, low, high, n, confidence)
