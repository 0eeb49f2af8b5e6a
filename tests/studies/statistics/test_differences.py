"""Paired differences: what a pair of policies can say, and what it must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.statistics.differences import SAME, difference
from studies.statistics.directions import better
from studies.statistics.intervals import mean
from tests.studies.statistics.coverage import assert_covers

Pairs = tuple[dict[int, float], dict[int, float]]


def paired(seed: int, n: int = 8, factor: float = 1.2, noise: float = 0.05) -> Pairs:
    """Two policies on the same luck: seeds vary by a third, the second is `factor` of the first but for a little."""
    rng = np.random.default_rng(seed)
    luck = rng.normal(100, 30, n).clip(10)
    return dict(enumerate(luck)), dict(enumerate(factor * luck * (1 + noise * rng.standard_normal(n))))


def test_a_difference_much_smaller_than_the_luck_of_seeds_is_seen() -> None:
    a, b = paired(0)
    found = difference(a, b, better="lower")
    assert found.seen
    assert found.verdict == "worse"
    unpaired = mean(list(a.values())).half_width
    assert found.absolute.half_width is not None
    assert unpaired is not None
    assert found.absolute.half_width < unpaired / 3


def test_the_absolute_interval_is_that_of_the_paired_t_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = paired(1)
    expected = stats.ttest_rel(list(b.values()), list(a.values())).confidence_interval(0.95)
    found = difference(a, b).absolute
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@given(st.integers(0, 10_000), st.floats(0.7, 1.4), st.integers(5, 12))
def test_relative_and_absolute_intervals_agree_on_whether_there_is_a_difference(
    seed: int, factor: float, n: int
) -> None:
    found = difference(*paired(seed, n, factor, 0.2))
    low, high = found.relative.low, found.relative.high
    if low is not None and high is not None:
        assert (low > 0 or high < 0) == found.seen
        assert low <= (found.relative.estimate or 0) <= high


def test_the_ratio_lies_in_its_interval_as_often_as_stated() -> None:
    def covered(rng: np.random.Generator) -> bool:
        luck = rng.standard_normal(10)
        a, b = 100 + 10 * luck, 120 + 8 * luck + 6 * rng.standard_normal(10)
        found = difference(dict(enumerate(a)), dict(enumerate(b))).relative
        assert found.low is not None
        assert found.high is not None
        return found.low <= 0.2 <= found.high

    assert_covers(covered)


def test_ratios_turn_round_with_the_policies() -> None:
    a, b = paired(3)
    there, back = difference(a, b).relative, difference(b, a).relative
    assert there.low is not None
    assert back.high is not None
    assert (1 + there.low) * (1 + back.high) == pytest.approx(1)


def test_seeds_of_one_side_only_are_refused_by_name() -> None:
    a, b = paired(0)
    found = difference(a, {seed + 5: value for seed, value in b.items()})
    assert found.absolute.low is None
    assert "0, 1, 2 and more" in found.absolute.refused
    assert found.verdict == "not compared"


def test_the_order_of_seeds_changes_nothing() -> None:
    a, b = paired(0)
    assert difference(a, dict(reversed(b.items()))) == difference(a, b)


def test_four_pairs_are_too_few() -> None:
    a, b = paired(0, n=4)
    found = difference(a, b)
    assert found.absolute.estimate is not None
    assert found.absolute.low is None
    assert found.sentence() == "B cannot be compared with A: 4 paired seeds; an interval needs 5"


def test_a_pair_without_a_value_leaves_no_interval() -> None:
    a, b = paired(0)
    found = difference(a, b | {2: None})
    assert found.absolute.refused == "1 of 8 pairs have no value"
    nothing = difference(a, dict.fromkeys(b))
    assert nothing.absolute.estimate is None
    assert nothing.verdict == "not compared"


def test_no_interval_of_width_zero_where_seeds_change_nothing() -> None:
    found = difference(dict.fromkeys(range(5), 200.0), dict.fromkeys(range(5), 150.0), better="lower")
    assert found.absolute.low is None
    assert found.absolute.refused == SAME
    assert found.sentence() == "B is 25 % better than A (the same under every seed)"
    assert str(found) == "-25 %"


def test_a_policy_that_changes_nothing_is_the_same() -> None:
    a, _ = paired(0)
    found = difference(a, a)
    assert found.sentence() == "B and A are the same"
    assert str(found) == "no difference"


def test_nothing_is_a_part_of_zero() -> None:
    found = difference(dict.fromkeys(range(5), 0.0), {0: 3.0, 1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0}, better="lower")
    assert found.seen
    assert found.relative.estimate is None
    assert "the first is 0" in found.relative.refused
    assert found.sentence("fcfs", "sjf") == "fcfs is worse than sjf, which has none"


def test_a_first_one_that_may_be_zero_has_no_ratio() -> None:
    found = difference({0: 0.0, 1: 0.0, 2: 4.0, 3: 0.0, 4: 0.0}, {0: 3.0, 1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0})
    assert found.relative.low is None
    assert "not distinguishable from 0" in found.relative.refused


def test_differences_read_as_sentences() -> None:
    a = {seed: 100.0 + seed for seed in range(5)}
    b = {seed: 88.0 + 0.8 * seed + 0.5 * (-1) ** seed for seed in range(5)}
    found = difference(a, b, better="lower")
    assert str(found) == "-12.1 % ± 0.7 %"
    assert found.sentence("B", "A") == "B is 12.1 % ± 0.7 % better than A"
    assert difference(a, b, better="higher").sentence() == "B is 12.1 % ± 0.7 % worse than A"
    assert difference(a, b).sentence() == "B is 12.1 % ± 0.7 % lower than A"
    wide = difference(a, {seed: 100.0 + 30 * (-1) ** seed for seed in range(5)})
    assert wide.sentence().startswith("B is not distinguishable from A: the difference is +4 % ")


@pytest.mark.parametrize(
    ("key", "way"),
    [
        ("p95_ttft_ms", "lower"),
        ("by_class.chat.mean_ttft_ms", "lower"),
        ("usd_per_1m_output_tokens", "lower"),
        ("usd_marginal_per_1m_output_tokens", "lower"),
        ("output_throughput", "higher"),
        ("good_request_fraction", "higher"),
        ("steps", None),
    ],
)
def test_which_way_a_figure_is_better(key: str, way: str | None) -> None:
    assert better(key) == way
