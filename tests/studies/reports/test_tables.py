from __future__ import annotations

import pytest

from studies.reports import tables


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


def test_lists_in_words() -> None:
    assert tables.joined(["a"]) == "a"
    assert tables.joined(["a", "b", "c"]) == "a, b and c"
    assert tables.few(["a", "b"]) == "a, b"
    assert tables.few(["a", "b", "c", "d"]) == "a, b and 2 more"
    assert tables.few(["a", "b", "c", "d"], 3, "; ") == "a; b; c; and 1 more"
    assert tables.few(["a", "b", "c"], 1, "\n") == "a\nand 2 more"
