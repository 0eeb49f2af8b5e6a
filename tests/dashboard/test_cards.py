from __future__ import annotations

import pytest

import scenarios
from dashboard.explore.cards import cards, changed
from studies.aspects.kv_use import kv_use
from studies.run import simulate


@pytest.fixture(scope="module")
def runs():
    slow = ["workload.requests=80", "engine.max_num_seqs=2", "workload.arrivals.rate=6"]
    return simulate(scenarios.load("demo", overrides=slow[:1])), simulate(scenarios.load("demo", overrides=slow))


def by_label(found):
    return {card.label: card for card in found}


def test_lower_latency_is_better_and_more_throughput_is(runs):
    baseline, run = runs
    found = by_label(cards(run, baseline))
    assert found["TTFT p50"].change.endswith("-fold")
    assert found["TTFT p50"].colour == "inverse"
    assert found["Output"].colour == "normal"
    assert found["KV peak"].colour == "off"
    assert baseline.summary["p50_ttft_ms"] < run.summary["p50_ttft_ms"]


def test_a_figure_that_the_sample_cannot_carry_is_a_dash_with_the_reason(runs):
    found = by_label(cards(runs[0]))["TTFT p99"]
    assert found.value == "–"
    assert "p99 needs 299" in found.help
    assert found.change == ""


def test_against_itself_nothing_changes(runs):
    assert {card.change for card in cards(runs[0], runs[0])} <= {"same", ""}


@pytest.mark.parametrize(
    ("kind", "value", "other", "said"),
    [
        ("ms", 88.0, 100.0, "-12 %"),
        ("ms", 100.2, 100.0, "same"),
        ("ms", 1500.0, 10.0, "150-fold"),
        ("share", 0.9, 0.95, "-5 pp"),
        ("count", 7, 10, "-3"),
        ("count", 10, 10, "same"),
        ("usd", 0.5, 0.0, "+$0.50"),
    ],
)
def test_changes_in_words(kind, value, other, said):
    assert changed(kind, value, other) == said


def test_kv_use_is_a_share_and_the_peak_is_no_less_than_the_mean(runs):
    for run in (*runs, simulate(scenarios.load("cascade", overrides=["workload.requests=50"]))):
        use = kv_use(run)
        assert 0 < use.mean <= use.peak <= 1
