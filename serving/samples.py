"""What a sample can say: its percentiles, how many independent values it is worth, and how many a percentile needs."""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
LONG = 32_768


def percentile(values: ArrayLike, p: float, counts: ArrayLike | None = None) -> float:
    """Percentile p in [0, 100], linear between order statistics, as `numpy.percentile`.

    counts: how often each value occurs, for pooled samples that are never unfolded.
    """
    x = np.asarray(values, dtype=np.float64)
    return Sample(x, None if counts is None else np.asarray(counts, dtype=np.int64)).percentile(p)


class Sample:
    """A sample sorted once, for several percentiles. x: `(n,)`; counts: `(n,)`, or None for one each."""

    def __init__(self, x: Floats, counts: NDArray[np.int64] | None) -> None:
        if counts is None:
            self.x, self.ends = np.sort(x), None
        else:
            order = np.argsort(x)
            self.x, self.ends = x[order], np.cumsum(counts[order])

    def percentile(self, p: float) -> float:
        size = len(self.x) if self.ends is None else int(self.ends[-1])
        at = (size - 1) * p / 100.0
        low = math.floor(at)
        a, b = self._at(low), self._at(min(low + 1, size - 1))
        return a + (b - a) * (at - low)

    def _at(self, rank: int) -> float:
        row = rank if self.ends is None else int(np.searchsorted(self.ends, rank, side="right"))
        return float(self.x[row])


def effective_samples(values: ArrayLike) -> float:
    """Independent samples that an autocorrelated series, in order of arrival, is worth: n / (1 + 2 sum of rho).

    Geyer's initial positive sequence: autocorrelations are summed in pairs until a pair is negative. Never above n; of a
    series longer than `LONG` every k-th value is taken, which can only lower the result.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[:: -(-len(x) // LONG)] if len(x) > LONG else x
    n = len(x)
    if n < 4:
        return float(n)
    x = x - x.mean()
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(x, size)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size)[:n]
    if covariance[0] <= 1e-12 * n:  # all equal, but for rounding of nanoseconds
        return float(n)
    rho = covariance / covariance[0]
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    kept = pairs[: negative[0]] if len(negative) else pairs
    return float(n / max(1.0, 2.0 * float(kept.sum()) - 1.0))


def samples_needed(p: float) -> int:
    """Fewest independent samples whose [min, max] holds percentile p with 95 % confidence: 59 for p95, 299 for p99."""
    q = p / 100.0
    if not 0.0 < q < 1.0:
        return sys.maxsize  # no sample holds the end of a distribution
    n = max(1, int(math.log(1.0 - CONFIDENCE) / math.log(max(q, 1.0 - q))))  # but for the other, smaller end
    while 1.0 - q**n - (1.0 - q) ** n < CONFIDENCE:
        n += 1
    return n
