"""MSER-5 cuts what is of an empty system, little else, and nothing where nothing would be left."""

from __future__ import annotations

import numpy as np
import pytest

from studies.statistics.batch_means import batch_means
from studies.statistics.warm_up import BATCH, mser5
from tests.studies.statistics.series import autoregressive, waits


def transient(seed: int, n: int = 5000, size: float = 10.0, length: float = 100.0) -> np.ndarray:
    """Ends exponentially: `size` at first, a thirtieth of it after 3.4 `length`."""
    return size * np.exp(-np.arange(n) / length) + autoregressive(np.random.default_rng(seed), n, 0.5)


def test_a_known_transient_is_cut_where_it_drowns_in_noise() -> None:
    cuts = [mser5(transient(seed)).cut for seed in range(30)]
    assert all(cut is not None and 150 <= cut <= 450 for cut in cuts)


def test_the_mean_after_the_cut_is_right_where_the_whole_mean_is_not() -> None:
    whole, warm = [], []
    for seed in range(40):
        x = transient(seed, n=5000, size=20)
        for found, values in ((whole, x), (warm, x[mser5(x).cut :])):
            interval = batch_means(values)
            found.append(interval.low is not None and interval.low <= 0 <= (interval.high or 0))
    assert sum(whole) == 0
    assert sum(warm) >= 32


def test_of_a_steady_series_little_is_cut() -> None:
    cuts = [mser5(autoregressive(np.random.default_rng(seed), 3000, 0.5)).cut for seed in range(40)]
    assert all(cut is not None and cut <= 300 for cut in cuts)
    assert np.median([cut or 0 for cut in cuts]) == 0


def test_a_cut_that_gains_little_is_not_made_where_it_must_gain() -> None:
    """Of skewed values a cut after the last of the large ones at the beginning looks surer, and is only lower."""
    series = [waits(np.random.default_rng(seed), 1000, 0.5) for seed in range(40)]
    cuts = [(mser5(x).cut or 0, mser5(x, least_gain=0.2).cut or 0) for x in series]
    assert all(few in (0, some) for some, few in cuts)
    assert sum(few for _, few in cuts) < 0.6 * sum(some for some, _ in cuts)
    assert [mser5(transient(s), 0.2).cut for s in range(10)] == [mser5(transient(s)).cut for s in range(10)]


def test_cuts_are_whole_batches() -> None:
    assert all((mser5(transient(seed)).cut or 0) % BATCH == 0 for seed in range(5))


def test_a_queue_that_grows_to_the_end_has_no_steady_state() -> None:
    growing = waits(np.random.default_rng(0), 3000, 1.3, warm=0)
    found = mser5(growing)
    assert found.cut is None
    assert found.refused == "the warm-up would end in the second half of 3,000 values: not steady, or too short a run"


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_where_the_zero_is_changes_nothing(shift: float) -> None:
    assert mser5(transient(1) + shift) == mser5(transient(1))


def test_values_that_are_all_the_same_are_warm_from_the_start() -> None:
    assert mser5(np.full(500, 0.1)).cut == 0


def test_fewer_than_a_hundred_values_have_no_warm_up() -> None:
    assert mser5(np.arange(99.0)).cut is None
    assert mser5([]).refused == "0 values; a warm-up is looked for in 100 or more"
