"""Percentiles of several replications together.

The mean of each run's own percentile is no percentile of all requests: load comes and goes within minutes, a short run sees some of
it, and its tail is that of its own mood. On average p95 of runs that are short against these moods is too low (on one H100 near its
capacity by an eighth, with runs of three minutes). So the requests of all runs are one sample, and the interval is Woodruff's (1952):
that of the share of requests below the percentile, by Student's t over the runs, carried back through the sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from studies.statistics import intervals, student
from studies.statistics.intervals import CONFIDENCE, FEWEST, Interval

Floats = NDArray[np.float64]


def percentile(runs: Sequence[Floats], p: float, confidence: float = CONFIDENCE, fewest: int = FEWEST) -> Interval:
    """Percentile p in (0, 100) of the values of independent runs, `(n_k,)` each, with an interval; n: runs.

    high is None where the interval reaches beyond the largest value: the runs do not carry it yet, and `refused` says so.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    intervals.check_confidence(confidence)
    kept = [run for run in runs if len(run)]
    if not kept:
        return Interval(None, n=0, confidence=confidence, refused="no run has this figure")
    x = np.sort(np.concatenate(kept))
    estimate = float(np.percentile(x, p))
    k = len(kept)
    if k < len(runs):
        why = f"{len(runs) - k} of {len(runs)} replications have no value"
        return Interval(estimate, n=k, confidence=confidence, refused=why)
    if k < fewest:
        return Interval(estimate, n=k, confidence=confidence, refused=f"{k} replications; an interval needs {fewest}")
    half = _half_of_share(kept, len(x), estimate, confidence)
    low, high = p / 100 - half, p / 100 + half
    if high > 1 - 1 / len(x):
        why = f"the interval of p{p:g} reaches beyond the largest value"
        return Interval(estimate, float(np.quantile(x, max(low, 0.0))), None, k, confidence, why)
    return Interval(estimate, float(np.quantile(x, max(low, 0.0))), float(np.quantile(x, high)), k, confidence)


def _half_of_share(runs: Sequence[Floats], total: int, at: float, confidence: float) -> float:
    """Half of the interval of the share of values at or below `at`. Runs have about, but not exactly, as many values each: the share
    is a ratio, linear in what each run has beyond its part (Cochran 1977, 6.4)."""
    k = len(runs)
    below = np.array([np.count_nonzero(run <= at) for run in runs], dtype=np.float64)
    sizes = np.array([len(run) for run in runs], dtype=np.float64)
    beyond = (below - below.sum() / total * sizes) / (total / k)
    deviation = float(np.sqrt(np.sum(beyond**2) / (k - 1)))
    return student.quantile(confidence, k - 1) * deviation / math.sqrt(k)
