"""Batch means of one run: right of what is stationary, refused where values are too alike."""

from __future__ import annotations

import numpy as np
import pytest

from studies.statistics import intervals
from studies.statistics.batch_means import batch_means, lag1
from tests.studies.statistics.coverage import assert_covers, share
from tests.studies.statistics.series import autoregressive, waits


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_mean_of_correlated_values_lies_in_its_interval_as_often_as_stated(phi: float) -> None:
    def covered(rng: np.random.Generator) -> bool:
        found = batch_means(autoregressive(rng, 5000, phi))
        return found.low is None or found.low <= 0 <= (found.high or 0)

    assert_covers(covered, trials=300)


def test_waits_of_a_queue_are_covered_nearly_as_often_as_stated() -> None:
    """M/M/1 at 70 % load, 10,000 requests: skewed and long correlated, the hardest that reports have; at least 90 of 100."""

    def covered(rng: np.random.Generator) -> bool:
        found = batch_means(waits(rng, 10_000, 0.7))
        return found.low is None or found.low <= 0.7 / 0.3 <= (found.high or 0)

    assert share(covered, 300, seed=1) > 0.9


def test_what_t_says_of_correlated_values_as_if_independent_is_wrong() -> None:
    def covered(rng: np.random.Generator) -> bool:
        found = intervals.mean(autoregressive(rng, 5000, 0.9).tolist())
        return found.low is not None and found.low <= 0 <= (found.high or 0)

    assert share(covered, 100, seed=0) < 0.6


def test_values_that_are_too_alike_are_refused() -> None:
    found = batch_means(autoregressive(np.random.default_rng(0), 3000, 0.99))
    assert found.estimate is not None
    assert found.low is None
    assert "3,000 values, worth" in found.refused
    assert "batches need 50" in found.refused


def test_a_trend_is_refused() -> None:
    assert batch_means(np.arange(5000) + 100 * np.random.default_rng(0).normal(size=5000)).low is None


def test_a_caller_may_allow_fewer_batches() -> None:
    x = np.random.default_rng(1).normal(size=1000)
    assert batch_means(x, most=25).n == 20
    assert batch_means(x, most=10).n == 10


def test_correlation_that_is_left_widens_the_interval() -> None:
    x = autoregressive(np.random.default_rng(3), 3000, 0.9)
    found = batch_means(x)
    means = x[len(x) % found.n :].reshape(found.n, -1).mean(axis=1)
    assert lag1(means) > 0
    assert (found.half_width or 0) > (intervals.mean(means.tolist()).half_width or 0)


def test_independent_values_make_thirty_batches() -> None:
    assert batch_means(np.random.default_rng(1).normal(size=1000)).n == 30


def test_values_that_are_all_the_same_have_no_interval_of_width_zero() -> None:
    found = batch_means(np.full(1000, 0.1))
    assert found.estimate == 0.1
    assert found.low is None
    assert found.refused == "the same throughout 1,000 values"


@pytest.mark.parametrize("n", [0, 1, 20])
def test_few_values_are_refused(n: int) -> None:
    assert batch_means(np.arange(float(n))).low is None
