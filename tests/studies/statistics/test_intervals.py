"""Intervals of means hold the truth as often as they say, or are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from studies.statistics import intervals, student
from studies.statistics.intervals import Interval, mean
from tests.studies.statistics.coverage import assert_covers

Draw = Callable[[np.random.Generator], np.ndarray]


@given(st.integers(1, 400), st.floats(0.01, 0.9999))
def test_students_t_is_that_of_scipy(freedom: int, confidence: float) -> None:
    assert student.quantile(confidence, freedom) == pytest.approx(stats.t.ppf(0.5 + confidence / 2, freedom), rel=1e-8)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("n", [5, 30])
def test_the_mean_of_normal_values_lies_in_its_interval_as_often_as_stated(n: int, confidence: float) -> None:
    assert_covers(
        lambda rng: held(mean(rng.normal(3, 2, n).tolist(), confidence), 3), confidence=confidence, trials=1000
    )


def test_of_skewed_values_the_interval_of_many_holds_it_too() -> None:
    """Of few exponential values it does not: replications give means of runs, which are not that skewed."""
    assert_covers(lambda rng: held(mean(rng.standard_exponential(200).tolist()), 1))


def held(found: Interval, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= truth <= found.high


def test_four_replications_give_no_interval() -> None:
    found = mean([1.0, 2.0, 3.0, 4.0])
    assert (found.estimate, found.low, found.refused) == (2.5, None, "4 replications; an interval needs 5")
    assert mean([]).estimate is None


def test_a_replication_without_a_value_is_not_left_out_silently() -> None:
    found = mean([1.0, 2.0, None, 3.0, 4.0, 5.0])
    assert found.low is None
    assert found.refused == "1 of 6 replications have no value"


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_lies_between_0_and_1(confidence: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        mean([1.0] * 5, confidence)


def test_intervals_need_no_scipy_since_every_report_has_some() -> None:
    code = (
        "import sys; from studies.statistics.batch_means import batch_means; import numpy as np; "
        "assert batch_means(np.random.default_rng(0).normal(size=1000)).low is not None; "
        "assert not any(name.startswith('scipy') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_document_of_an_interval_says_why_it_has_none() -> None:
    assert mean([1.0]).to_dict()["refused"]
    assert "refused" not in mean([1.0, 2.0, 3.0, 4.0, 5.0]).to_dict()
    assert intervals.Interval(1.0, 0.5, 2.0).half_width == 0.75
