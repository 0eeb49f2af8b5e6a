"""Figures of profiles show what was measured; where a profile does not carry its points, it is said and nothing is invented."""

from __future__ import annotations

import pytest

from sim.profile_cost import ProfileCost
from sim.profiles import load_profile
from studies.figures import as_plotly, described, themed
from studies.profiles import cost_figures, fit_figures
from studies.profiles.gallery import gallery
from studies.profiles.sheet import sheet

FITTED = load_profile("cpu-avx2-qwen3-tiny")
COMPOSED = load_profile("h200/llama-3.1-8b-bf16-tp1")
LOGGED = FITTED.model_copy(update={"measurements": ()})
PROFILES = {"fitted": FITTED, "composed": COMPOSED, "of a log": LOGGED}


def dots(figure):
    return [pair for t in figure["data"] if t["mode"] == "markers" for pair in zip(t["x"], t["y"], strict=True)]


def test_every_measured_step_is_a_dot():
    found = dots(fit_figures.predicted_against_measured(FITTED))
    assert len(found) == len(FITTED.measurements)
    cost = ProfileCost(FITTED)
    expected = {(float(f"{m.ns / 1e6:.5g}"), float(f"{cost.step_ns(m.shape) / 1e6:.5g}")) for m in FITTED.measurements}
    assert set(found) == expected


@pytest.mark.parametrize("over", ["tokens", "context"])
def test_residuals_are_of_what_was_measured(over):
    figure = fit_figures.residuals(FITTED, over)
    cost = ProfileCost(FITTED)
    expected = sorted(100 * (m.ns / cost.step_ns(m.shape) - 1) for m in FITTED.measurements)
    assert sorted(y for _, y in dots(figure)) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert "within the spread of their own repeats" in described(figure)


def test_points_that_are_not_carried_are_not_invented():
    for profile, why in ((COMPOSED, "not the rows themselves"), (LOGGED, "does not carry the steps")):
        figure = fit_figures.predicted_against_measured(profile)
        assert figure["data"] == []
        assert why in described(figure)
    assert dots(fit_figures.residuals(LOGGED)) == []
    assert "nine of ten lie between" in described(fit_figures.residuals(LOGGED))


def test_errors_of_operators_are_those_of_the_profile():
    figure = fit_figures.cross_validated(COMPOSED)
    mean = next(t for t in figure["data"] if t["name"] == "mean size (MAPE)")
    assert mean["x"] == pytest.approx([100 * e.mape for e in COMPOSED.cv_error.values() if e.observations], rel=1e-3)


def test_curves_go_through_their_points():
    figure = cost_figures.over_tokens(COMPOSED)
    curve = COMPOSED.tokens["linears"]
    points = next(t for t in figure["data"] if t["name"] == "linears" and t["mode"] == "markers")
    assert points["x"] == [at for at in curve.at if at]
    assert points["y"] == pytest.approx([ns / 1e6 for at, ns in zip(curve.at, curve.ns, strict=True) if at], rel=1e-3)


def test_a_curve_without_a_point_at_one_token_begins_there():
    figure = cost_figures.over_tokens(COMPOSED)
    line = next(t for t in figure["data"] if t["name"] == "element-wise" and t["mode"] == "lines")
    assert line["x"][0] == 1


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_a_sheet_and_figures(name):
    profile = PROFILES[name]
    for figure in gallery(profile).values():
        as_plotly(themed(figure, dark=True))
        assert described(figure)
    found = sheet(profile)
    facts = dict(found.facts)
    assert facts["hash"] == profile.hash()
    assert facts["coverage"]
    titles = [table.title for table in found.tables]
    assert "Domain" in titles
    assert ("Terms" if found.kind == "steps" else "Operators") in titles
