"""Acceptance of drafts: what is counted, and that the fit finds what rows were drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from calibration.acceptance import Verifications, beta_binomial, fit


def drawn(mean: float, concentration: float, requests: int, steps: int, k: int = 4) -> Verifications:
    rng = np.random.default_rng(3)
    rates = rng.beta(mean * concentration, (1 - mean) * concentration, requests)
    stand = rng.random((requests, steps, k)) < rates[:, None, None]
    accepted = np.cumprod(stand, axis=2).sum(axis=2).ravel()
    who = np.repeat(np.arange(requests), steps)
    return Verifications(who, np.full(len(who), k), accepted)


@pytest.mark.parametrize(("mean", "concentration"), [(0.7, 8.0), (0.3, 3.0), (0.9, 200.0)])
def test_the_fit_finds_the_distribution_of_requests(mean: float, concentration: float) -> None:
    found = fit(4, drawn(mean, concentration, 400, 60))
    assert found.mean == pytest.approx(mean, abs=0.02)
    assert np.log(found.concentration) == pytest.approx(np.log(concentration), abs=0.35)


def test_a_draft_behind_a_rejected_one_says_nothing() -> None:
    seen = Verifications(np.array([0, 0, 0, 1]), np.array([3, 3, 2, 0]), np.array([3, 1, 0, 0]))
    found = fit(3, seen)
    assert found.per_position == (2 / 3, 1 / 2, 1.0)
    assert found.found == 3 / 4
    assert found.steps_per_token == 4 / 8
    assert (found.requests, found.verifications) == (2, 3)


def test_positions_that_nobody_reached_have_no_figure() -> None:
    found = fit(3, Verifications(np.array([0, 1]), np.array([2, 2]), np.array([0, 0])))
    assert found.per_position == (0.0, None, None)


def test_without_drafts_there_is_nothing_to_say() -> None:
    with pytest.raises(ValueError, match="no draft was proposed in 2 steps"):
        fit(3, Verifications(np.array([0, 1]), np.array([0, 0]), np.array([0, 0])))


def test_requests_that_are_alike_have_a_large_concentration() -> None:
    _, concentration = beta_binomial(np.full(50, 30.0), np.full(50, 60.0))
    assert concentration > 300
