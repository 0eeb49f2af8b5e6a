"""Residual noise of step times, from a fit's residuals in the order in which steps were measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibration.features import Column
from sim.profile_parts import Noise

_MOST_POINTS = 500
_LEAST_STEPS = 100
"""Fewer successive steps say nothing of a tail."""


def noise_of(residuals: Column, positions: NDArray[np.int64]) -> Noise | None:
    """Distribution and lag-1 correlation of measured / predicted - 1, `(n,)`; None for fewer than a hundred steps.

    The correlation is that of normal scores (ranks as standard normal values), so that a few interrupted steps do not decide
    it. Quantiles lie close enough for the largest of them to weigh no more than the steps that had it.

    Args:
        positions: number of each step, ascending; only steps that followed one another are compared.
    """
    from scipy.special import ndtri

    n = len(residuals)
    if n < _LEAST_STEPS:
        return None
    ranks = np.empty(n)
    ranks[np.argsort(residuals, kind="stable")] = np.arange(n)
    scores = np.asarray(ndtri((ranks + 0.5) / n), dtype=np.float64)
    follows = np.diff(positions) == 1
    together = float((scores[1:] * scores[:-1])[follows].mean()) if follows.any() else 0.0
    points = min(_MOST_POINTS, n // 2)
    quantiles = np.percentile(residuals, np.linspace(0, 100, points + 1))
    quantiles -= (quantiles[1:] + quantiles[:-1]).mean() / 2  # the mean of what is drawn between them
    return Noise(
        correlation=min(max(together / float((scores**2).mean()), 0.0), 0.999),
        quantiles=tuple(float(q) for q in np.maximum(quantiles, -0.99)),
    )
