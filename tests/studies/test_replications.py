"""One scenario under several seeds: what they say together, and when they say nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scenarios
from scenarios.schema import Scenario
from serving.metrics import latencies
from studies import simulate
from studies.replications import ALIKE, alike, replicate

DRAWN = ("workload.requests=300", "workload.arrivals.rate=8")


def scenario(*settings: str) -> Scenario:
    return scenarios.load("azure-conversation", overrides=settings or DRAWN)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """300 requests, three a second."""
    rng = np.random.default_rng(0)
    rows = [
        f"2023-11-16 18:{i // 180:02}:{i // 3 % 60:02}.{i % 3 * 300000:06}0,{rng.integers(50, 3000)},{rng.integers(5, 300)}"
        for i in range(300)
    ]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")
    return path


def test_the_interval_is_of_a_value_a_seed() -> None:
    found = replicate(scenario(), 5, processes=1)
    assert found.seeds == (0, 1, 2, 3, 4)
    assert not found.alike
    interval = found.interval("mean_ttft_ms")
    assert interval.n == 5
    assert interval.low is not None
    assert interval.low < (interval.estimate or 0) < (interval.high or 0)
    assert found.by_seed("mean_ttft_ms")[3] == simulate(scenario(*DRAWN, "seed=3")).summary["mean_ttft_ms"]


def test_processes_change_nothing() -> None:
    assert replicate(scenario(), [4, 0, 2], processes=2) == replicate(scenario(), [4, 0, 2], processes=1)


def test_pairs_of_a_scenario_with_itself_are_the_same() -> None:
    a = replicate(scenario(), 5, processes=1)
    assert a.difference(a, "mean_ttft_ms").verdict == "the same"


def test_a_paired_difference_is_seen_where_intervals_of_each_overlap() -> None:
    one = replicate(scenario(), 5, processes=1)
    other = replicate(scenario(*DRAWN, "engine.max_num_batched_tokens=1024"), 5, processes=1)
    key = "mean_tpot_ms"
    found = one.difference(other, key)
    assert found.seen
    assert found.better == "lower"
    paired, alone = found.absolute.half_width, one.interval(key).half_width
    assert paired is not None
    assert alone is not None
    assert paired < alone


def test_other_seeds_are_no_pairs() -> None:
    one, other = replicate(scenario(), range(5), processes=1), replicate(scenario(), range(1, 6), processes=1)
    found = one.difference(other, "mean_ttft_ms")
    assert found.verdict == "not compared"
    assert "not paired" in found.absolute.refused


def test_a_replayed_trace_gives_no_interval_of_width_zero(trace: Path) -> None:
    found = replicate(scenario(f"workload.trace.path={trace}"), 5, processes=1)
    assert found.alike
    interval = found.interval("mean_ttft_ms")
    assert interval.estimate is not None
    assert interval.low is None
    assert interval.refused == ALIKE


def test_of_a_replayed_trace_one_run_says_what_it_knows(trace: Path) -> None:
    found = replicate(scenario(f"workload.trace.path={trace}"), 2, processes=1).within("mean_ttft_ms")
    assert found.n in (10, 20, 30)
    assert found.low is not None
    assert found.low < (found.estimate or 0) < (found.high or 0)


def test_a_policy_on_a_trace_differs_without_an_interval(trace: Path) -> None:
    one = replicate(scenario(f"workload.trace.path={trace}"), 5, processes=1)
    settings = (f"workload.trace.path={trace}", "engine.max_num_batched_tokens=1024")
    found = one.difference(replicate(scenario(*settings), 5, processes=1), "mean_ttft_ms")
    assert found.absolute.low is None
    assert found.sentence().endswith("(the same under every seed)")


def test_what_names_a_run_makes_no_difference_between_runs() -> None:
    rows = [{"seed": seed, "scenario_hash": str(seed), "point": 3, "mean_ttft_ms": 5.0} for seed in range(3)]
    assert alike(rows)
    assert not alike([*rows, {"seed": 3, "mean_ttft_ms": 5.1}])
    assert not alike(rows[:1])


def test_a_seed_twice_is_no_second_replication() -> None:
    with pytest.raises(ValueError, match="same seed twice"):
        replicate(scenario(), [0, 1, 1])


def test_figures_after_a_warm_up_are_of_requests_sent_after_it() -> None:
    run = simulate(scenario())
    found = replicate(scenario(), [0], processes=1, warm_up=10.0).rows[0]
    sent = np.sort(run.records.requests["arrival_ns"])
    later = latencies(run.records)["ttft"][sent - sent[0] >= 10e9]
    assert len(later) < 300
    assert found["mean_ttft_ms"] == pytest.approx(later.mean() * 1e3)
    assert found["p90_ttft_ms"] == pytest.approx(np.percentile(later, 90) * 1e3)
    assert found["output_throughput"] == run.summary["output_throughput"]


def test_no_warm_up_changes_nothing() -> None:
    assert replicate(scenario(), [0], processes=1, warm_up=0.0) == replicate(scenario(), [0], processes=1)


def test_the_good_fraction_after_a_warm_up_leaves_the_warm_up_out() -> None:
    found = replicate(scenario(*DRAWN, "slo.ttft=30ms", "slo.tpot=10s"), [0], processes=1, warm_up=5.0).rows[0]
    run = simulate(scenario(*DRAWN, "slo.ttft=30ms", "slo.tpot=10s"))
    sent = np.sort(run.records.requests["arrival_ns"])
    later = latencies(run.records)["ttft"][sent - sent[0] >= 5e9]
    assert found["good_request_fraction"] == pytest.approx((later <= 0.03).mean())


def test_without_a_warm_up_by_mser_there_is_no_figure() -> None:
    """Far above what the engine can do, the queue grows to the end."""
    found = replicate(scenario(*DRAWN[:1], "workload.arrivals.rate=200"), 5, processes=1, warm_up="mser")
    assert found.values("mean_ttft_ms") == [None] * 5
    assert found.interval("mean_ttft_ms").refused == "5 of 5 replications have no value"
    assert found.interval("output_throughput").low is not None


@pytest.mark.parametrize("warm_up", [-1.0, float("nan"), "soon"])
def test_other_warm_ups_are_refused(warm_up: object) -> None:
    with pytest.raises(ValueError, match="'mser' or seconds"):
        replicate(scenario(), 2, processes=1, warm_up=warm_up)  # type: ignore[arg-type]
