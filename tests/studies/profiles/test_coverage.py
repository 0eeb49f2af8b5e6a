"""What a run asks for beside what was measured."""

from __future__ import annotations

import pytest

import scenarios
import studies
from studies.aspects import extrapolation
from studies.aspects.step_costs import cost_of
from studies.figures import as_plotly, described, themed
from studies.profiles import coverage

FITTED = "cost={source: profile, profile: cpu-avx2-qwen3-tiny}"


def covered(*changes):
    scenario = scenarios.load("demo", overrides=["workload.requests=60", *changes])
    records = studies.simulate(scenario).records
    return coverage.coverage(records, cost_of(scenario)), records, cost_of(scenario)


def test_a_run_inside_says_so():
    found, _, _ = covered(FITTED)
    assert found.steps == 0
    assert [part.outside for part in found.parts] == [0] * 6
    assert "Every step of the run lies inside" in found.sentence
    assert all(trace["name"] != "the run, outside" for trace in coverage.figure(found)["data"])


def test_what_lies_outside_is_what_the_report_says():
    found, records, cost = covered(FITTED, "engine.max_num_batched_tokens=1024", "workload.arrivals.rate=40")
    reported = extrapolation.extrapolation(records, cost)
    assert (found.steps, found.time) == (reported["steps"], reported["time"])
    tokens = found.parts[0]
    assert (tokens.name, tokens.high) == ("tokens of a step", 512)
    assert tokens.most == reported["parts"][0]["value"] > 512
    assert 0 < tokens.outside <= found.steps
    figure = coverage.figure(found)
    outside = next(trace for trace in figure["data"] if trace["name"] == "the run, outside")
    assert outside["x"][:2] == pytest.approx([512, tokens.most])
    assert "the profile extrapolates" in described(figure)
    as_plotly(themed(figure, dark=True))
    assert coverage.table(found).rows[0][1:3] == ("1 to 512", f"1 to {tokens.most:,.0f}")


def test_where_nothing_was_measured_the_figure_says_so():
    scenario = scenarios.load("demo")
    found = coverage.coverage(studies.simulate(scenario).records, cost_of(scenario))
    assert found is None
    assert "have no domain" in described(coverage.figure(found))
