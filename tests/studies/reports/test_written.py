"""How figures with intervals, and differences, stand in reports."""

import pytest

from studies.reports import written
from studies.statistics import intervals
from studies.statistics.differences import difference
from studies.statistics.intervals import Interval


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Interval(127.0, 121.0, 133.0, 5), "127 ± 6"),
        (Interval(127.0, n=2, refused="2 replications; an interval needs 5"), "127"),
        (Interval(1.0, 1.0, 1.0, 5), "1"),
        (Interval(None), "–"),
        (None, "–"),
    ],
)
def test_an_estimate_stands_with_half_of_its_interval(found: Interval | None, text: str) -> None:
    assert written.plus_minus(found) == text


@pytest.mark.parametrize(
    ("key", "interval", "said"),
    [
        ("mean_ttft_ms", Interval(162.34, 157.2, 167.4, 5), "162 ± 5"),
        ("mean_ttft_ms", Interval(162.34, 160.97, 163.71, 5), "162.3 ± 1.4"),
        ("mean_ttft_ms", Interval(0.62525, 0.62405, 0.62645, 5), "0.6252 ± 0.0012"),
        ("completed", Interval(12345.0, 12000.0, 12690.0, 5), "12,345 ± 345"),
        ("good_request_fraction", Interval(0.971, 0.967, 0.975, 5), "97.1 % ± 0.4"),
        ("good_request_fraction", Interval(0.996, 0.989, 1.0, 5), "99.6 % (98.9 to 100.0)"),
        ("kv_cache_hit_percent", Interval(91.8, 91.2, 92.4, 5), "91.8 ± 0.6"),
        ("completed", Interval(30.0, 30.0, 30.0, 5), "30"),
        ("mean_ttft_ms", Interval(7.0, 6.9999999, 7.0000001, 5), "7 ± 1e-07"),
        ("mean_ttft_ms", Interval(None), "–"),
        ("p99_ttft_ms", intervals.mean([1.0, None, 2.0]), "–"),
    ],
)
def test_figures_show_their_interval_to_the_digit_that_it_leaves(key, interval, said):
    assert written.figure(key, interval) == said


def pair(first, second, key="mean_ttft_ms"):
    better = "lower" if key.endswith("_ms") else "higher"
    return written.change(key, difference(dict(enumerate(first)), dict(enumerate(second)), better=better))


def test_changes_are_written_as_parts_points_times_or_not_seen():
    steps = [0.0, 1.0, -1.0, 0.5, -0.5]
    base = [100.0 + s for s in steps]
    assert pair(base, [88.0 - s for s in steps]) == "-12.0 % ± 1.9 %"
    assert pair(base, [100.0 - s for s in steps]) == "none seen"
    assert pair(base, base) == "same"
    assert pair(base, [4000.0 + 10 * s for s in steps]) == "40.0 times ± 0.3"
    assert pair([0.0] * 5, [3.0, 4, 5, 4, 4], "completed") == "+4.0 ± 0.9"
    assert pair([0.9 + s / 100 for s in steps], [0.8 + s / 100 for s in steps], "good_request_fraction") == "-10 pts"
    assert pair([1.0] * 5, [None] * 5) == "–"
    assert pair([2.0] * 5, [1.0] * 5) == "-50 %"


@pytest.mark.parametrize(
    ("found", "text", "around"),
    [
        (Interval(-0.12, -0.15, -0.09, 5), "-12 % ± 3 %", "12 % ± 3 %"),
        (Interval(-0.12, -0.18, -0.09, 5), "-12 % (-18 to -9 %)", "12 % (9 to 18 %)"),
        (Interval(-0.12, -0.15, -0.0901, 5), "-12 % ± 3 %", "12 % ± 3 %"),
        (Interval(-0.001, -0.04, 0.038, 5), "+0 % ± 4 %", "0 % ± 4 %"),
        (Interval(0.02, -0.004, 0.1, 5), "+2 % (+0 to +10 %)", "2 % (0 to 10 %)"),
        (Interval(-0.12345, -0.12345, -0.12345, 5), "-12 %", "12 %"),
        (Interval(-0.12345, -0.123450001, -0.123449999, 5), "-12 %", "12 %"),
        (Interval(-0.03, refused="1 paired seeds; an interval needs 5"), "-3 %", "3 %"),
        (Interval(11.0, 10.5, 11.5, 5), "12.0 times ± 0.5", "1,100 % ± 50 %"),
        (Interval(None), "–", "–"),
    ],
)
def test_a_part_that_is_more_stands_with_its_interval(found: Interval, text: str, around: str) -> None:
    assert written.part(found) == text
    assert written.part(found, around=True) == around
