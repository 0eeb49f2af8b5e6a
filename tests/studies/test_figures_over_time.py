"""What runs leave over time, and how their latencies stand beside one another."""

from __future__ import annotations

import numpy as np
import pytest

import scenarios
from studies import figures
from studies.figures import over_time
from studies.results import Run
from studies.run import simulate
from tests.studies.every_figure import TIGHT


@pytest.fixture(scope="module")
def tight() -> Run:
    return simulate(scenarios.load("demo", overrides=TIGHT))


@pytest.fixture(scope="module")
def demo() -> Run:
    return simulate("demo")


def test_every_preemption_is_counted_when_it_happened(tight: Run) -> None:
    at = over_time.preempted_at(tight.records)
    assert len(at) == tight.summary["preemptions"] > 0
    starts = tight.records.steps["start_ns"] / 1e9
    assert np.isin(at, starts).all()
    bars = figures.load_over_time(tight.records)["data"][-1]
    assert bars["name"] == "preemptions"
    assert sum(bars["y"]) == len(at)


def test_preemptions_of_several_replicas_have_their_own_clocks() -> None:
    records = simulate(scenarios.load("demo", overrides=[*TIGHT, "workload.arrivals.rate=80", "replicas=2"])).records
    steps = records.steps
    expected = [
        int(steps["start_ns"][(steps["replica"] == replica) & (steps["step"] == step)][0]) / 1e9
        for replica, step, _ in records.preempted.tolist()
    ]
    assert set(records.preempted[:, 0]) == {0, 1}
    assert over_time.preempted_at(records).tolist() == expected


def test_without_preemptions_there_is_no_room_for_them(tight: Run, demo: Run) -> None:
    calm, pressed = (figures.load_over_time(run.records)["layout"] for run in (demo, tight))
    assert "yaxis3" not in calm
    assert calm["height"] < pressed["height"]
    assert calm["xaxis"]["anchor"] == "y2"
    assert pressed["xaxis"]["anchor"] == "y3"


def test_words_state_the_peaks(tight: Run) -> None:
    steps = tight.records.steps
    text = figures.described(figures.load_over_time(tight.records, tight.info["engine"]["num_gpu_blocks"] - 1))
    assert f"At most {steps['running'].max()} requests run and {steps['waiting'].max()} wait" in text
    assert f"{tight.summary['preemptions']} preemptions" in text


def test_a_baseline_stands_behind_in_grey(tight: Run, demo: Run) -> None:
    runs = {"pinned": demo.records, "now": tight.records}
    behind, front = figures.latency_cdf("ttft", runs, baseline="pinned")["data"]
    assert (behind["name"], front["name"]) == ("pinned", "now")
    assert behind["line"]["color"] == figures.GREY
    assert behind["line"]["dash"] == "dash"
    assert behind["legendrank"] > front["legendrank"], "named last"
    alone = figures.latency_cdf("ttft", {"now": tight.records})["data"][0]
    assert front["line"] == alone["line"], "the run looks as it does alone"


def test_a_baseline_alone_is_a_run_like_any_other(demo: Run) -> None:
    (line,) = figures.latency_cdf("ttft", {"pinned": demo.records}, baseline="pinned")["data"]
    assert line["line"]["color"] == figures.BLUE


def test_words_state_percentiles_that_the_summary_states(demo: Run) -> None:
    text = figures.described(figures.latency_cdf("ttft", {"demo": demo.records}, demo.slo))
    assert demo.summary["p99_ttft_ms"] is None
    assert "99 % within" not in text
    assert f"half within {demo.summary['median_ttft_ms']:.3g} ms" in text
    many = simulate(scenarios.load("demo", overrides=["workload.requests=3000", "hardware=H100"]))
    text = figures.described(figures.latency_cdf("ttft", {"demo": many.records}))
    assert f"99 % within {many.summary['p99_ttft_ms']:.3g} ms" in text
