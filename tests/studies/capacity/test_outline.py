"""A curve within seconds: its loads, where objectives break by estimate, the knee, and how it is told."""

import pytest

import scenarios
from scenarios.errors import InputError
from studies.capacity import boundary, choices, figures, outline_report
from studies.capacity.load import load_of
from studies.capacity.outline import LOADS, bound, outline, spread
from studies.figures import described
from tests.studies.capacity.conftest import SERVICE


@pytest.fixture(scope="module")
def curve(straight_profile):
    from tests.studies.capacity.conftest import text

    parts = []
    found = outline(
        scenarios.loads(text(straight_profile)), "queue_mean<=10ms", partial=lambda one: parts.append(len(one.around))
    )
    return found, parts


def test_the_bound_of_one_server_is_the_inverse_of_its_service_time(one_server):
    assert bound(load_of(one_server())) == pytest.approx(1 / SERVICE, rel=0.1)


def test_the_bound_of_a_closed_loop_is_where_its_asymptotes_cross(one_server):
    closed = one_server("workload.arrivals={process: closed_loop, concurrency: 4, think_time: 90ms}")
    assert bound(load_of(closed)) == pytest.approx((0.09 + SERVICE) / SERVICE, rel=0.1)


def test_the_objective_breaks_by_estimate_where_theory_says(curve):
    """Pollaczek and Khinchine, M/D/1: a mean wait of 10 ms at two thirds of the service rate."""
    found, _ = curve
    passed = boundary.upper(found)
    assert passed.load == pytest.approx(2 / 3 / SERVICE, rel=0.15)
    assert passed.low <= passed.load <= passed.high
    assert passed.objective == "queue_mean <= 10ms"
    assert boundary.lower(found) is None


def test_loads_come_one_by_one_and_the_first_is_the_scenarios_own(curve):
    found, parts = curve
    assert parts == list(range(1, len(parts) + 1))
    assert len(parts) >= LOADS
    assert next(iter(found.around)) == 50


def test_the_knee_has_the_highest_power(curve):
    found, _ = curve
    power = {
        x: tried.interval("request_throughput").estimate / tried.interval("mean_e2el_ms").estimate
        for x, tried in found.curve.items()
    }
    assert found.knee == max(power, key=power.get)
    assert 0.3 / SERVICE < found.knee < 1 / SERVICE


def test_figures_mark_the_estimate_and_the_knee_and_say_so(curve):
    found, _ = curve
    for figure in (figures.latency(found, "ttft"), figures.throughput(found)):
        notes = [note["text"].strip() for note in figure["layout"]["annotations"]]
        assert {"limit (estimate)", "knee", "as it is"} <= set(notes)
        assert "By estimate queue_mean <= 10ms holds up to about" in described(figure)


def test_sentences_name_the_limit_and_what_breaks(curve):
    found, _ = curve
    said = " ".join(outline_report.sentences(found))
    assert "Estimate: queue_mean <= 10ms holds up to about" in said
    assert "then queue_mean <= 10ms breaks." in said
    assert "The scenario as it is, 50 requests/s, is" in said


def test_the_table_has_a_row_a_load_with_its_intervals(curve):
    found, _ = curve
    rows = outline_report.frame(found).to_pylist()
    assert [row["load"] for row in rows] == list(found.curve)
    assert all(row["p50_ttft_ms_low"] <= row["p50_ttft_ms"] <= row["p50_ttft_ms_high"] for row in rows)
    assert not any(row["decided"] for row in rows)


def test_a_limit_that_an_empty_engine_misses_is_said_to_be_one(one_server):
    found = outline(one_server(), "ttft_p50<=1ms", requests=100)
    assert boundary.upper(found) is None
    assert "is the limit one that an empty engine can keep?" in outline_report.sentences(found)[0]


def test_a_throughput_that_is_asked_for_has_a_least_load(one_server):
    found = outline(one_server(), "request_throughput>=20", requests=200)
    assert boundary.lower(found).load == pytest.approx(20, rel=0.2)


def test_spread_loads_hold_the_scenarios_own_place():
    loads = spread(lambda x: float(f"{x:.4g}"), 5.0, 10.0)
    assert len(loads) == LOADS - 1
    assert loads[0] == max(loads) or loads[0] == min(loads)


def test_of_a_long_trace_the_first_requests_make_the_curve(tmp_path):
    file = tmp_path / "trace.csv"
    rows = "".join(f"{k / 10},{100},{20}\n" for k in range(3000))
    file.write_text("arrival,prompt_tokens,output_tokens\n" + rows)
    scenario = scenarios.load("demo", trace=file, overrides=["workload.trace.format=csv", "workload.trace.time_unit=s"])
    found = outline(scenario, "ttft_p95<=2s", requests=100)
    assert {tried.requests for tried in found.curve.values()} == {100}
    assert found.over.unit == "times as fast"


def test_replicas_of_a_device_start_from_what_could_carry_the_load():
    scenario = scenarios.load("azure-conversation", overrides=["workload.arrivals.rate=60"])
    space = choices.choices(scenario, ["H100"], ["auto"], [1])
    variants = space["axes"][0]["variants"]
    counts = [int(name.split()[0]) for name in variants]
    assert counts == sorted(counts)
    assert 3 <= counts[0] <= 5
    assert all(f"replicas={n}" in settings for n, settings in zip(counts, variants.values(), strict=True))


def test_a_device_that_does_not_hold_the_weights_stays_in_to_be_refused():
    scenario = scenarios.load("azure-conversation", overrides=["model=Llama-3.1-70B", "engine.tensor_parallel_size=2"])
    assert list(choices.choices(scenario, ["RTX-4090"], ["auto"], [1])["axes"][0]["variants"]) == ["1 x RTX-4090"]


def test_pools_have_no_one_device_to_choose():
    with pytest.raises(InputError, match="devices of their own"):
        choices.choices(scenarios.load("cascade"))
