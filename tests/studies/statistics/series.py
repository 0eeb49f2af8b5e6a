"""Series whose distribution is known, in order of time."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]


def autoregressive(rng: Generator, n: int, phi: float) -> Floats:
    """x[i] = phi x[i-1] + a standard normal; stationary, of mean 0 and variance 1 / (1 - phi^2). `(n,)`."""
    warm = 50 if phi == 0 else 20 * int(1 / (1 - phi))
    return np.asarray(lfilter([1.0], [1.0, -phi], rng.standard_normal(n + warm))[warm:])


def waits(rng: Generator, n: int, load: float, warm: int = 1000) -> Floats:
    """Waiting times of M/M/1 with services of mean 1: their mean is load / (1 - load). `(n,)`. warm: requests before them."""
    total = n + warm
    service, gaps = rng.standard_exponential(total), rng.standard_exponential(total) / load
    ahead = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    return np.asarray((ahead - np.minimum.accumulate(ahead))[warm:])
