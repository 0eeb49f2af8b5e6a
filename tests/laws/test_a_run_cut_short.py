"""A run that is cut at a horizon is the beginning of the whole run: what has ended by then, and every step, is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from serving.records import Records
from serving.request import Status
from tests.laws.worlds import World, law, worlds

UNFINISHED = -1, int(Status.IN_FLIGHT)


def ended(records: Records, by: int) -> np.ndarray:
    """Rows of requests that had ended by that time."""
    requests = records.requests
    return ~np.isin(requests["status"], UNFINISHED) & (requests["finish_ns"] <= by)


@law(300)
@given(worlds(gated=True), st.floats(0, 1))
def test_what_has_ended_by_the_horizon_is_as_in_the_whole_run(world: World, share: float) -> None:
    """In closed loops and sessions too: nobody knows what comes."""
    whole = world.run()
    horizon = max(1, int(share * max(whole.requests["finish_ns"].max(initial=1), 1)))
    cut = replace(world, horizon_ns=horizon).run()
    rows = ended(whole, horizon)
    assert np.array_equal(rows, ended(cut, horizon))
    for name, column in whole.requests.items():
        assert np.array_equal(column[rows], cut.requests[name][rows]), name


@law(200)
@given(worlds(gated=True), st.floats(0, 1))
def test_every_step_that_has_ended_by_the_horizon_is_as_in_the_whole_run(world: World, share: float) -> None:
    whole = world.run()
    horizon = max(1, int(share * max(whole.requests["finish_ns"].max(initial=1), 1)))
    cut = replace(world, horizon_ns=horizon).run()
    before, kept = whole.steps["end_ns"] <= horizon, cut.steps["end_ns"] <= horizon
    assert kept.all()
    for name, column in whole.steps.items():
        assert np.array_equal(column[before], cut.steps[name][kept]), name
