"""Percentiles of several runs together hold what they should, where the mean of the runs' own does not."""

import numpy as np
import pytest

from studies.capacity.pooled import percentile


def moody(rng: np.random.Generator, runs: int, n: int) -> list[np.ndarray]:
    """Runs that are short against what moves them: each has a mood of its own."""
    return [rng.standard_normal() + 0.5 * rng.standard_normal(n) for _ in range(runs)]


def test_the_interval_holds_the_percentile_as_often_as_it_says():
    rng = np.random.default_rng(0)
    true = 1.6448536 * np.sqrt(1.25)
    spans = [percentile(moody(rng, 24, 400), 95, 0.9) for _ in range(400)]
    held = np.mean([span.low <= true <= (np.inf if span.high is None else span.high) for span in spans])
    assert 0.85 <= held <= 0.95  # three deviations of a share of 400


def test_the_mean_of_the_percentiles_of_short_runs_is_too_low():
    rng = np.random.default_rng(1)
    runs = moody(rng, 2000, 200)
    true = 1.6448536 * np.sqrt(1.25)
    assert percentile(runs, 95).estimate == pytest.approx(true, rel=0.05)
    assert np.mean([np.percentile(run, 95) for run in runs]) < 0.6 * true


def test_runs_of_different_lengths_weigh_by_their_requests():
    short, long = np.zeros(10), np.arange(1000.0)
    assert percentile([short, *[long] * 5], 50).estimate == np.percentile(np.concatenate([short, *[long] * 5]), 50)


def test_a_tail_beyond_the_largest_value_has_no_upper_end():
    rng = np.random.default_rng(2)
    span = percentile(moody(rng, 6, 50), 99)
    assert span.high is None
    assert span.low < span.estimate
    assert "beyond the largest" in span.refused


def test_few_runs_have_no_interval():
    span = percentile([np.arange(100.0)] * 4, 50)
    assert (span.low, span.n) == (None, 4)
    assert "4 replications" in span.refused


def test_a_run_without_values_is_not_passed_over():
    span = percentile([np.arange(100.0)] * 6 + [np.empty(0)], 50)
    assert span.low is None
    assert "1 of 7" in span.refused
