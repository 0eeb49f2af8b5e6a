"""What one run knows of its own means once it is warm, in every report."""

from __future__ import annotations

import json
import re

import pytest

import scenarios
from serving.metrics import latencies
from studies import results, simulate
from studies.reports import html, report, run_tables
from studies.results import Run
from studies.statistics import steady_state


def ran(rate: float, *more: str, requests: int = 1000) -> Run:
    settings = [f"workload.arrivals.rate={rate}", f"workload.requests={requests}", *more]
    return simulate(scenarios.load("azure-conversation", overrides=settings))


@pytest.fixture(scope="module")
def run() -> Run:
    return ran(8)


def test_every_latency_has_a_cut_and_the_mean_of_the_requests_after_it(run: Run) -> None:
    found = run.info["steady_state"]
    assert list(found) == ["ttft", "tpot", "e2el", "queue"]
    for metric, state in found.items():
        values = latencies(run.records)[metric]
        assert state["requests"] == len(values)
        if state["cut"] is not None and state["mean_ms"]["low"] is not None:
            kept = values[state["cut"] :]
            kept = kept[len(kept) % state["mean_ms"]["n"] :]
            assert state["mean_ms"]["estimate"] == pytest.approx(kept.mean() * 1e3)
    assert found["ttft"]["mean_ms"]["low"] < found["ttft"]["mean_ms"]["high"]


def test_the_interval_of_one_run_holds_the_mean_of_long_ones(run: Run) -> None:
    """TTFT of 8/s: what 1,000 requests say, against 20,000."""
    interval = steady_state.interval(run.info["steady_state"]["ttft"])
    long = ran(8, requests=20_000)
    assert interval.low is not None
    assert interval.low < long.summary["mean_ttft_ms"] < (interval.high or 0)


def test_an_overloaded_run_has_no_steady_state(run: Run) -> None:
    found = ran(200).info["steady_state"]["ttft"]
    assert found["cut"] is None
    assert found["mean_ms"]["estimate"] is None
    assert "not steady" in found["refused"]


def test_a_short_run_says_that_it_is_too_short() -> None:
    short = ran(8, requests=40)
    (table,) = steady_state.tables_of(short)
    assert all(row[1:] == ("–", "–", "–") for row in table.rows)
    assert table.note == "– TTFT, TPOT, E2E, queue time: 40 values; a warm-up is looked for in 100 or more"


def test_the_table_stands_in_every_report_and_in_the_json(run: Run, tmp_path) -> None:
    assert [t.title for t in run_tables.every(run)].count("Steady state") == 1
    page = re.sub("<[^>]*>", "", html.render(report.page(run)))
    assert "Steady state" in page
    assert "warm-up cut" in page
    folder = results.save(run, tmp_path / "out")
    document = json.loads((folder / "result.json").read_text())
    assert document["run"]["steady_state"] == run.info["steady_state"]
    assert steady_state.tables_of(results.load(folder)) == steady_state.tables_of(run)


def test_a_result_of_before_there_was_any_has_no_table(run: Run) -> None:
    old = Run(run.records, run.summary, {k: v for k, v in run.info.items() if k != "steady_state"})
    assert steady_state.tables_of(old) == []


def test_only_requests_that_have_a_figure_count() -> None:
    """Answers of one token have no TPOT."""
    one = ran(8, "workload.output=1")
    assert one.info["steady_state"]["tpot"]["requests"] == 0
    assert one.info["steady_state"]["ttft"]["requests"] == 1000
