"""Residual noise: how much, and how long a slow moment lasts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from calibration.noise import noise_of


def residuals(n: int, correlation: float, seed: int = 0):
    """Skewed values with normal scores that follow one another so."""
    rng = np.random.default_rng(seed)
    z = np.empty(n)
    z[0] = rng.normal()
    for i in range(1, n):
        z[i] = correlation * z[i - 1] + np.sqrt(1 - correlation**2) * rng.normal()
    return np.exp(0.1 * z) - 1.0


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_correlation_of_successive_steps_is_found(correlation):
    found = noise_of(residuals(20_000, correlation), np.arange(20_000))
    assert found.correlation == pytest.approx(correlation, abs=0.02)


def test_only_steps_that_followed_one_another_are_compared():
    """Every second row of a series with 0.8 between neighbours: what is two steps apart is not a neighbour."""
    series, at = residuals(20_000, 0.8), np.arange(20_000)
    pairs = at % 10 < 2
    assert noise_of(series[pairs], at[pairs]).correlation == pytest.approx(0.8, abs=0.03)


def test_what_is_drawn_has_no_mean_and_the_measured_spread():
    series = residuals(5_000, 0.8)
    found = noise_of(series, np.arange(5_000))
    u = ndtr(np.random.default_rng(1).normal(size=200_000))
    drawn = np.interp(u, np.linspace(0, 1, len(found.quantiles)), found.quantiles)
    assert drawn.mean() == pytest.approx(0.0, abs=0.001)
    assert drawn.std() == pytest.approx(series.std(), rel=0.03)


def test_one_interrupted_step_weighs_no_more_than_itself():
    series = residuals(1_000, 0.8)
    series[500] = 20.0
    found = noise_of(series, np.arange(1_000))
    assert found.correlation == pytest.approx(noise_of(residuals(1_000, 0.8), np.arange(1_000)).correlation, abs=0.02)
    assert found.quantiles[-3] < 1


def test_a_few_steps_say_nothing_of_noise():
    assert noise_of(residuals(50, 0.5), np.arange(50)) is None
