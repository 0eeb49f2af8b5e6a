"""The highest load is found where theory has it, and what cannot be found is said."""

import math
from functools import partial

import numpy as np
import pytest

import scenarios
from scenarios.errors import InputError
from studies.capacity import search
from studies.capacity.load import load_of
from tests.studies.capacity.conftest import SERVICE

highest_load = partial(search.highest_load, processes=1, resolution=0.05, most=12)
LENGTHS = -np.log1p(-(np.arange(500) + 0.5) / 500) * 1000
"""Exponential prompt lengths of mean 1,000, as equally likely values."""


def exponential(one_server):
    values = np.rint(LENGTHS).clip(1).astype(int).tolist()
    return one_server(f"workload.input={{distribution: empirical, values: {values}}}"), np.array(
        values
    ) * SERVICE / 1000


def assert_holds(found, rate: float) -> None:
    low, high = found.interval
    assert low <= rate <= high
    assert high <= 1.15 * low


def test_a_mean_wait_of_md1_is_kept_up_to_the_rate_of_theory(one_server):
    """Pollaczek and Khinchine: W = rate S^2 / (2 (1 - rate S))."""
    wait = 0.01
    found = highest_load(one_server(), f"queue_mean<={wait * 1e3}ms")
    assert_holds(found, 2 * wait / (SERVICE**2 + 2 * wait * SERVICE))
    assert found.binding["objective"] == "queue_mean <= 10ms"
    assert all(x == float(f"{x:.4g}") for x in found.tried), "loads that can be typed in again"


def test_a_mean_wait_of_mm1_is_kept_up_to_the_rate_of_theory(one_server):
    wait = 0.01
    scenario, times = exponential(one_server)
    found = highest_load(scenario, f"queue_mean<={wait * 1e3}ms")
    assert_holds(found, 2 * wait / (np.mean(times**2) + 2 * wait * times.mean()))


def test_a_tail_of_mm1_is_kept_up_to_the_load_of_theory(one_server):
    """A request waits longer than t with chance load * exp(-(1 - load) t / S)."""
    scenario, times = exponential(one_server)
    mean, limit = float(times.mean()), 0.1
    loads = np.linspace(0.01, 0.99, 9801)
    rare = loads * np.exp(-(1 - loads) * limit / mean) <= 0.05
    found = highest_load(scenario, f"queue_p95<={limit * 1e3:g}ms", most=48)
    assert_holds(found, loads[rare].max() / mean)


def test_without_a_limit_that_breaks_a_server_is_kept_until_its_queue_grows(one_server):
    found = highest_load(one_server(), "ttft_p50<=1h", resolution=0.15)
    assert_holds(found, 1 / SERVICE)
    assert found.binding == {"objective": "backlog", "resource": "max_num_seqs"}


def test_clients_are_counted(one_server):
    """Of k clients without pauses each waits for the others: E2E is k services."""
    scenario = one_server("workload.arrivals={process: closed_loop, concurrency: 4}", "workload.requests=500")
    found = highest_load(scenario, "e2e_p50<=105ms", requests=400)
    assert found.over.path == "workload.arrivals.concurrency"
    assert found.interval == (10, 11)
    assert found.over.said(10) == "10 clients"


def test_stages_are_scaled_together(one_server):
    scenario = one_server(
        "workload.arrivals={process: staged, stages: [{rate: 10, duration: 20s}, {rate: 40, duration: 20s}]}",
        "workload.requests=null",
    )
    found = highest_load(scenario, "ttft_p99<=100ms")
    assert found.over.unit == "times the scenario's rates"
    assert found.over.at(2).workload.arrivals.stages[1].rate == 80
    assert_holds(found, 2.5)


def test_a_trace_is_replayed_faster(one_server, tmp_path):
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(1 / 50, 8000))
    rows = "".join(f"{t:.6f},1000,1\n" for t in times)
    (tmp_path / "trace.csv").write_text("arrival,prompt_tokens,output_tokens\n" + rows)
    trace = f"{{path: {tmp_path / 'trace.csv'}, format: csv, time_unit: s}}"
    found = highest_load(one_server(f"workload.trace={trace}"), "queue_mean<=10ms")
    assert found.over.path == "workload.trace.speedup"
    low, high = found.interval
    assert 1.1 < low < 4 / 3 < high < 1.6  # 4 / 3 is theory's, over all such traces
    assert all(tried.alike for tried in found.tried.values())
    assert sum(tried.runs for tried in found.tried.values()) == 2 * len(found.tried)


def test_what_no_load_meets_is_said(one_server):
    found = highest_load(one_server(), "ttft_p50<=9ms")
    assert found.load is None
    assert found.interval == (None, found.broken)
    assert found.why.startswith("never met: even at ")
    assert "ttft_p50 <= 9ms is broken" in found.why


def test_what_no_load_breaks_is_said(one_server):
    scenario = one_server("workload.arrivals={process: closed_loop, concurrency: 2}")
    found = highest_load(scenario, "queue_p50>=1ms", requests=200)
    assert found.why.startswith("never broken")
    assert found.interval[1] is None


def test_a_throughput_wants_more_load_not_less(one_server):
    """Begins far below what it asks for, and ends where the queue grows."""
    found = highest_load(one_server("workload.arrivals.rate=5"), "request_throughput>=20", resolution=0.15)
    assert_holds(found, 1 / SERVICE)
    assert found.direction(5.0) == "up"


def test_objectives_that_no_load_meets_together_contradict_one_another(one_server):
    found = highest_load(one_server(), "request_throughput>=80, queue_mean<=5ms", resolution=0.1)
    assert found.load is None
    assert "contradict one another" in found.why
    assert "request_throughput >= 80" in found.why
    assert "queue_mean <= 5ms" in found.why


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("engine.max_num_seqs", "no load but a setting"),
        ("replicas", "--fewest replicas"),
        ("workload.requests", "how long a run is"),
        ("workload.arrivals.rte", "states no such number"),
        ("workload.arrivals.process", "a load is a number"),
        ("workload.concurrency", "states no such number"),
    ],
)
def test_what_is_no_load_is_refused(one_server, over, said):
    with pytest.raises(InputError, match=said) as refused:
        load_of(one_server(), over)
    assert over in str(refused.value)
    assert "workload.rate" in str(refused.value)


def test_arrivals_without_a_rate_say_what_their_load_is(one_server):
    clients = one_server("workload.arrivals={process: closed_loop, concurrency: 2}")
    with pytest.raises(InputError, match=r"workload\.arrivals\.concurrency"):
        load_of(clients, "workload.rate")
    with pytest.raises(InputError, match="have no rate"):
        load_of(one_server("workload.arrivals=all_at_once"))


def test_the_rates_of_a_mix_are_scaled_together():
    parts = "".join(
        f"    {name}: {{requests: 10, arrivals: {{process: poisson, rate: {rate}}}, input: 10, output: 10}}\n"
        for name, rate in (("chat", 2), ("batch", 4))
    )
    scenario = scenarios.loads(f"model: Qwen3-0.6B\nhardware: H100\nworkload:\n  mix:\n{parts}")
    load = load_of(scenario)
    mix = load.at(1.5).workload.mix
    assert [mix[name].arrivals.rate for name in ("chat", "batch")] == [3, 6]
    one = load_of(scenario, "workload.mix.batch.arrivals.rate")
    assert math.isclose(one.at(5).workload.mix["batch"].arrivals.rate, 5)
