"""Figures of validations: what is measured lies along, what is predicted lies up, and what is not there is said."""

from __future__ import annotations

import pytest

import scenarios
import studies
from studies.figures import as_plotly, described, themed
from studies.validations import figures, made, shipped
from studies.validations.record import Points, Ranking, Row, Validation, Variant


@pytest.fixture(scope="module")
def small_validation():
    pytest.importorskip("torch", reason="the real engine (extra `gpu`) is not installed")
    told: list[float] = []
    changes = [
        "workload.requests=4", "workload.arrivals.rate=50", "workload.input=10", "workload.output=3", "engine.max_num_seqs=4",
        "workload.prompts.prefix_tokens=32", "engine.max_num_batched_tokens=16", "engine.max_model_len=128",
    ]  # fmt: skip
    scenario = scenarios.load("demo", overrides=changes)
    found = studies.validate(scenario, repeats=1, grid="quick", progress=lambda _, part: told.append(part))
    assert told == sorted(told)
    return found


def record(**more):
    about = {
        "name": "n",
        "title": "T",
        "kind": "own engine",
        "about": "a",
        "measured": "m",
        "verdict": "pass",
        "sentence": "s",
    }
    return Validation(**(about | more))


POINTS = (Points(metric="tpot", group="a", each="request", measured=(0.01, 0.02), predicted=(0.011, 0.018)),)
RANKED = Ranking(
    by="mean_e2el_ms",
    kendall_tau=1.0,
    pairs=1,
    variants=(
        Variant(name="static", measured=(900.0, 910.0), predicted=880.0),
        Variant(name="chunked", measured=(300.0, 310.0), predicted=320.0),
    ),
)


def named(figure, name):
    return next(trace for trace in figure["data"] if trace.get("name") == name)


def test_requests_are_measured_along_and_predicted_up():
    rows = (Row(metric="mean_tpot_ms", measured=15.0, predicted=14.5, error=-0.03, noise=0.1),)
    figure = figures.scatter(record(points=POINTS, rows=rows), "tpot")
    assert named(figure, "a")["x"] == [10.0, 20.0]
    assert named(figure, "a")["y"] == [11.0, 18.0]
    low, high, *_ = named(figure, "noise, ± 10 %")["y"]
    assert high / named(figure, "noise, ± 10 %")["x"][1] == pytest.approx(0.9)
    assert low == 0


def test_without_requests_the_figures_are_shown():
    rows = (Row(metric="p50_ttft_ms", measured=200.0, predicted=210.0, error=0.05),)
    found = record(rows=rows)
    assert figures.metrics(found) == ["ttft"]
    assert named(figures.scatter(found, "ttft"), "figures")["x"] == [0.2]
    assert "says nothing of time per output token" in described(figures.scatter(found, "tpot"))


def test_errors_keep_their_sign_and_lie_on_their_noise():
    rows = (
        Row(metric="mean_ttft_ms", of="a", measured=100.0, predicted=88.0, error=-0.12, noise=0.02),
        Row(metric="mean_ttft_ms", of="b", measured=100.0, predicted=101.0, error=0.01),
    )
    figure = figures.errors(record(rows=rows))
    assert named(figure, "a")["x"] == [-12.0]
    assert named(figure, "noise of repeats")["x"] == [-2.0, 2.0, None]
    assert named(figure, "a")["y"] != named(figure, "b")["y"]
    assert "the largest is mean TTFT -12 % (a)" in described(figure)


def test_policies_come_in_their_measured_order():
    figure = figures.ranking(record(ranking=RANKED))
    assert figure["layout"]["yaxis"]["ticktext"] == ["chunked", "static"]
    assert named(figure, "predicted")["x"] == [320.0, 880.0]
    said = figure["layout"]["xaxis"]["title"]["text"].replace("<br>", " ")
    assert said == "mean E2E (ms) Kendall's tau 1 over 1 pair"
    assert "were not ranked" in described(figures.ranking(record()))


def test_worst_cells_count_half_as_far_off_as_double():
    rows = tuple(Row(metric=f"p{p}_ttft_ms", error=error) for p, error in ((50, 0.9), (90, -0.5), (99, 0.01)))
    assert [worst.figure for worst in made._worst(rows, "run")] == ["p90 TTFT (ms)", "p50 TTFT (ms)", "p99 TTFT (ms)"]


@pytest.mark.parametrize("name", shipped.NAMES)
def test_shipped_validations_are_drawn(name):
    found = shipped.load(name)
    drawn = [figures.scatter(found, metric) for metric in figures.metrics(found)]
    assert len(drawn) >= 2
    for figure in (*drawn, figures.errors(found), figures.ranking(found)):
        as_plotly(themed(figure, dark=True))
        assert described(figure)
    assert len(figures.worst_table(found).rows) == 10
    assert figures.facts_table(found).rows


def test_an_execution_just_made_has_the_same_figures(small_validation):
    found = made.of_report(small_validation)
    assert {row.metric: row.error for row in found.rows} == {row.metric: row.error for row in small_validation.outcome}
    assert (found.verdict, found.sentence) == (small_validation.verdict, small_validation.sentence)
    points = {points.metric: points for points in found.points}
    assert len(points["e2el"].measured) == small_validation.matched["E2E"].requests
    assert figures.ranking(found)["data"]
    assert Validation.model_validate_json(found.model_dump_json()) == found
