"""What one run alone knows, against what is true of its queue or of many runs."""

from __future__ import annotations

import pytest

import scenarios
from serving.metrics import by_request
from sim.cluster import simulate as simulate_one
from studies import simulate
from studies.results import Run
from studies.statistics.batch_means import batch_means
from studies.statistics.quantiles import quantile
from studies.statistics.steady_state import steady_state
from studies.statistics.within_run import within_run
from tests.laws.test_law_10_queues import ENGINE, QUEUES


def ran(*more: str) -> Run:
    settings = ["workload.arrivals.rate=8", "workload.requests=2000", *more]
    return simulate(scenarios.load("azure-conversation", overrides=settings))


@pytest.fixture(scope="module")
def run() -> Run:
    return ran()


def test_the_mean_wait_of_a_queue_lies_in_what_its_runs_say_of_it() -> None:
    """M/M/1 at 60 % load, as Pollaczek and Khinchine have it, in 10 of 12 runs at least."""
    queue, load = QUEUES["M/M/1"], 0.6
    theory = load / queue.mean * queue.square / (2 * (1 - load)) * 1e3
    held = refused = 0
    for seed in range(12):
        records = simulate_one(ENGINE, queue.drawn(seed, load, 6000), queue.cost)
        found = steady_state(records)["queue"]["mean_ms"]
        refused += found["low"] is None
        held += found["low"] is not None and found["low"] <= theory <= found["high"]
    assert refused <= 2
    assert held >= 10 - refused


def test_the_mean_is_that_of_the_steady_state_table(run: Run) -> None:
    for metric, state in run.info["steady_state"].items():
        found = within_run(run, f"mean_{metric}_ms")
        assert (found.estimate, found.low) == (state["mean_ms"]["estimate"], state["mean_ms"]["low"])


def test_a_tail_is_wider_than_the_middle_and_a_surer_interval_than_both(run: Run) -> None:
    middle, tail = within_run(run, "p50_ttft_ms"), within_run(run, "p95_ttft_ms")
    assert (middle.half_width or 0) < (tail.half_width or 0)
    assert (tail.half_width or 0) < (within_run(run, "p95_ttft_ms", 0.99).half_width or 0)


def test_requests_that_are_alike_widen_the_interval(run: Run) -> None:
    values = by_request(run.records, "tpot")
    values = values[values == values] * 1e3
    as_if = quantile(values, 50)
    assert (within_run(run, "p50_tpot_ms").half_width or 0) > 1.5 * (as_if.half_width or 0)


def test_one_run_holds_what_other_seeds_find(run: Run) -> None:
    other = ran("seed=7", "workload.requests=20000").summary
    for key in ("p50_ttft_ms", "p95_ttft_ms", "p95_e2el_ms"):
        found = within_run(run, key, 0.99)
        assert found.low is not None
        assert found.low <= other[key] <= (found.high or 0), key


def test_the_good_fraction_has_an_interval_of_a_part_of_all() -> None:
    strict = ran("slo.ttft=60ms")
    found = within_run(strict, "good_request_fraction")
    assert found.low is not None
    assert 0 < found.low < strict.summary["good_request_fraction"] < (found.high or 0) < 1


def test_where_nothing_is_promised_nothing_is_good(run: Run) -> None:
    free = simulate(scenarios.load("demo", overrides=["slo.ttft=null", "slo.tpot=null", "slo.e2e=null"]))
    assert within_run(free, "good_request_fraction").refused == "no SLO is stated"


def test_an_overloaded_run_knows_nothing() -> None:
    busy = ran("workload.arrivals.rate=200")
    for key in ("mean_ttft_ms", "p50_ttft_ms", "good_request_fraction"):
        assert "not steady" in within_run(busy, key).refused


@pytest.mark.parametrize("key", ["output_throughput", "mean_itl_ms", "usd_per_1m_output_tokens", "p_ttft_ms"])
def test_what_is_no_figure_of_single_requests_has_no_interval(run: Run, key: str) -> None:
    with pytest.raises(ValueError, match="only"):
        within_run(run, key)


def test_batches_are_of_requests_in_order_of_time(run: Run) -> None:
    """Their order in the records is another where parts of a mix are merged."""
    values = by_request(run.records, "ttft")
    order = run.records.requests["arrival_ns"].argsort(kind="stable")
    cut = run.info["steady_state"]["ttft"]["cut"]
    found = within_run(run, "mean_ttft_ms")
    assert found == batch_means(values[order][cut:] * 1e3, most=found.n)


def test_a_run_that_is_over_within_a_few_latencies_says_nothing_of_a_long_one() -> None:
    """All 500 requests are sent within a minute, and take 2.4 s each."""
    hasty = ran("workload.requests=500", "seed=1")
    for key in ("mean_ttft_ms", "p50_ttft_ms"):
        assert "times a mean E2E latency; batches need 50" in within_run(hasty, key).refused
