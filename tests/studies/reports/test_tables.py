from __future__ import annotations

import pytest

from studies.reports import tables
from studies.statistics.intervals import Interval


@pytest.mark.parametrize(
    ("key", "label", "name"),
    [
        ("p95_ttft_ms", "p95 TTFT (ms)", "p95 TTFT"),
        ("p99.9_e2el_ms", "p99.9 E2E (ms)", "p99.9 E2E"),
        ("by_class.chat.p99.9_ttft_ms", "chat: p99.9 TTFT (ms)", "chat: p99.9 TTFT"),
        ("by_tenant.a.b.mean_tpot_ms", "a.b: mean TPOT (ms)", "a.b: mean TPOT"),
        ("output_throughput", "output throughput (tok/s)", "output throughput"),
        ("preemptions", "preemptions", "preemptions"),
    ],
)
def test_a_figure_is_called_by_its_statistic_and_whose_it_is(key: str, label: str, name: str) -> None:
    assert (tables.label(key), tables.name(key)) == (label, name)


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
    assert tables.plus_minus(found) == text


def test_lists_in_words() -> None:
    assert tables.joined(["a"]) == "a"
    assert tables.joined(["a", "b", "c"]) == "a, b and c"
    assert tables.few(["a", "b"]) == "a, b"
    assert tables.few(["a", "b", "c", "d"]) == "a, b and 2 more"
    assert tables.few(["a", "b", "c", "d"], 3, "; ") == "a; b; c; and 1 more"
    assert tables.few(["a", "b", "c"], 1, "\n") == "a\nand 2 more"
