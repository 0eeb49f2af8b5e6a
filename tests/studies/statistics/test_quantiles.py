"""Intervals of quantiles and parts of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from serving.samples import samples_needed
from studies.statistics.proportions import proportion
from studies.statistics.quantiles import quantile
from tests.studies.statistics.coverage import assert_covers
from tests.studies.statistics.series import autoregressive


@pytest.mark.parametrize(("p", "n"), [(50, 40), (95, 59), (95, 300), (99, 299), (99, 1000)])
def test_quantiles_of_a_skewed_distribution_lie_in_their_interval_at_least_as_often_as_stated(p: float, n: int) -> None:
    truth = stats.expon.ppf(p / 100)

    def covered(rng: np.random.Generator) -> bool:
        found = quantile(rng.standard_exponential(n), p)
        return found.low is not None and found.low <= truth <= (found.high or 0)

    assert_covers(covered, most=0.985)


@given(st.integers(1, 600), st.sampled_from([1, 5, 50, 90, 95, 99]))
def test_ranks_hold_the_quantile_as_often_as_stated_by_the_binomial_distribution(n: int, p: float) -> None:
    found = quantile(np.arange(1.0, n + 1), p)
    if found.low is None:
        assert n < samples_needed(p)
        return
    low, high = found.low, found.high or 0
    assert stats.binom.cdf(high - 1, n, p / 100) - stats.binom.cdf(low - 1, n, p / 100) >= 0.95


@pytest.mark.parametrize("p", [5, 50, 90, 95, 99])
def test_an_interval_is_refused_below_the_samples_that_reports_need(p: float) -> None:
    needed = samples_needed(p)
    assert quantile(np.arange(float(needed)), p).low is not None
    few = quantile(np.arange(float(needed - 1)), p)
    assert few.low is None
    assert few.estimate is not None
    assert few.refused == f"{needed - 1} independent values hold no interval of p{p}"


def test_where_both_sides_can_be_cut_alike_it_is_the_interval_of_scipy() -> None:
    x = np.random.default_rng(0).standard_exponential(500)
    for p in (50, 90, 95):
        expected = stats.quantile_test(x, q=1, p=p / 100).confidence_interval(0.95)
        found = quantile(x, p)
        assert (found.low, found.high) == (expected.low, expected.high)


@pytest.mark.parametrize(("p", "phi"), [(50, 0.5), (95, 0.5), (50, 0.9), (95, 0.9)])
def test_values_that_are_alike_in_time_count_for_fewer(p: float, phi: float) -> None:
    truth = stats.norm.ppf(p / 100) / np.sqrt(1 - phi**2)

    def covered(rng: np.random.Generator) -> bool:
        found = quantile(autoregressive(rng, 5000, phi), p, independent=False)
        return found.low is not None and found.low <= truth <= (found.high or 0)

    assert_covers(covered, trials=200, most=0.97)


def test_a_tail_of_few_episodes_is_refused() -> None:
    one_burst = np.random.default_rng(0).normal(size=3000)
    one_burst[1000:1060] += 20
    found = quantile(one_burst, 99, independent=False)
    assert found.low is None
    assert "independent values, of 3,000, hold no interval of p99" in found.refused


@pytest.mark.parametrize("p", [0, 100, -1])
def test_the_ends_of_a_distribution_are_no_quantiles(p: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        quantile([1.0, 2.0], p)


def test_nothing_has_no_quantile() -> None:
    assert quantile([], 50).refused == "no values"


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_part_of_all_lies_in_its_interval_at_least_as_often_as_stated(share: float) -> None:
    def covered(rng: np.random.Generator) -> bool:
        found = proportion(rng.random(300) < share)
        return found.low is not None and found.low <= share <= (found.high or 0)

    assert_covers(covered, most=0.985)


@given(st.integers(0, 50), st.integers(1, 50))
def test_a_part_of_all_has_the_exact_interval_of_scipy(good: int, more: int) -> None:
    n = max(good, more)
    expected = stats.binomtest(good, n).proportion_ci(0.95)
    found = proportion(np.arange(n) < good)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_all_good_is_not_certainly_all_good() -> None:
    found = proportion(np.ones(100, dtype=bool))
    assert found.estimate == found.high == 1
    assert found.low == pytest.approx(0.964, abs=1e-3)


def test_requests_that_miss_together_count_for_fewer() -> None:
    which = np.repeat(np.random.default_rng(0).random(100) < 0.9, 20)
    alone, together = proportion(which), proportion(which, independent=False)
    assert (together.half_width or 0) > 2 * (alone.half_width or 0)
