"""What a decision hangs on, where it is known: shares and worth of sums whose parts are chosen."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from studies.uncertainty import influence
from studies.uncertainty.influence import influences
from studies.uncertainty.inputs import Input
from studies.uncertainty.spreads import Factor

INPUTS = tuple(Input(name, "a profile", "a device", Factor(0.1), "made up") for name in ("much", "little", "nothing"))


def drawn(n: int, seed: int = 1):
    return np.random.default_rng(seed).standard_normal((n, 3))


def share(found, part):
    [one] = [one for one in found.ranked if one.inputs[0].part == part]
    return one


def test_shares_of_a_sum_are_those_of_its_variance():
    x = drawn(400)
    requests = np.random.default_rng(2).standard_normal(400)
    y = 3 * x[:, 0] + 1 * x[:, 1] + 2 * requests
    found = influences(INPUTS, x, y, 2 * np.random.default_rng(3).standard_normal(80), seed=0)
    assert share(found, "much").share.estimate == pytest.approx(9 / 14, abs=0.08)
    assert share(found, "little").share.estimate == pytest.approx(1 / 14, abs=0.04)
    assert not share(found, "nothing").seen
    assert found.requests == pytest.approx(4 / 14, abs=0.09)
    total = sum(one.share.estimate for one in found.ranked) + found.requests + found.rest
    assert total == pytest.approx(1)


def test_intervals_of_shares_hold_the_true_ones_as_often_as_stated():
    held = []
    for seed in range(60):
        x = drawn(150, seed)
        y = 2 * x[:, 0] + np.random.default_rng(1000 + seed).standard_normal(150)
        found = share(influences(INPUTS, x, y, None, seed), "much").share
        held.append(found.low <= 0.8 <= found.high)
    assert np.mean(held) > 0.85


def test_nothing_is_seen_where_nothing_is(monkeypatch):
    monkeypatch.setattr(influence, "RESAMPLES", 2)
    seen = 0
    for seed in range(100):
        y = np.random.default_rng(1000 + seed).standard_normal(80)
        found = influences(INPUTS, drawn(80, seed), y, None, seed)
        seen += sum(one.seen for one in found.ranked)
    assert seen <= 10, "of 300, one in a hundred by chance"


def test_a_curve_counts_as_much_as_a_line():
    x = drawn(300)
    found = influences(INPUTS, x, x[:, 0] ** 2 + 0.1 * x[:, 1], None, 0)
    assert share(found, "much").share.estimate > 0.9


def test_what_acts_together_is_nobodys():
    x = drawn(300)
    found = influences(INPUTS, x, x[:, 0] * x[:, 1], None, 0)
    assert found.rest > 0.8


def test_the_worth_of_knowing_is_that_of_the_normal_distribution():
    """E max(y, 0) - max(E y, 0) of a normal advantage y (Raiffa and Schlaifer's unit normal loss)."""
    x = drawn(4000)
    mean, sd = 1.0, 2.0
    y = mean + sd * x[:, 0]
    found = influences(INPUTS, x, y, None, 0)
    normal = NormalDist()
    loss = sd * (normal.pdf(mean / sd) - mean / sd * normal.cdf(-mean / sd))
    assert share(found, "much").worth == pytest.approx(loss, rel=0.1)
    assert found.worth == pytest.approx(loss, rel=0.1)
    assert share(found, "much").changes == pytest.approx(normal.cdf(-mean / sd), abs=0.03)
    assert share(found, "nothing").worth == 0


def test_an_input_that_never_turns_the_choice_is_worth_nothing():
    x = drawn(300)
    found = influences(INPUTS, x, 100 + x[:, 0] + x[:, 1], None, 0)
    assert all(one.changes == 0 and one.worth == 0 for one in found.ranked)
    assert found.worth == 0


def test_the_ranking_begins_with_what_would_change_the_choice_most():
    x = drawn(300)
    found = influences(INPUTS, x, 1 + 2 * x[:, 1] + 0.5 * x[:, 0], None, 0)
    assert [one.inputs[0].part for one in found.ranked][:2] == ["little", "much"]


def test_too_few_worlds_are_not_taken_apart():
    found = influences(INPUTS, drawn(25), drawn(25)[:, 0], None, 0)
    assert not found.ranked
    assert "--worlds 32 serve" in found.refused


def test_a_constant_difference_hangs_on_nothing():
    found = influences(INPUTS, drawn(50), np.ones(50), None, 0)
    assert not found.ranked
    assert "in every world" in found.refused


def test_parts_never_come_to_more_than_the_whole():
    for seed in range(20):
        x = drawn(60, seed)
        found = influences(INPUTS, x, x.sum(axis=1), 0.5 * np.random.default_rng(seed).standard_normal(20), seed)
        total = sum(one.share.estimate for one in found.ranked) + found.requests + found.rest
        assert total == pytest.approx(1)
