"""The beginning of a run, shown before the whole of it is there."""

from __future__ import annotations

import numpy as np
import pytest

import scenarios
from scenarios import Scenario
from serving.request import Status
from studies.run import beginning, simulate


def demo(*overrides: str) -> Scenario:
    return scenarios.load("demo", overrides=["workload.requests=300", *overrides])


def test_what_has_ended_in_the_beginning_is_as_in_the_whole_run() -> None:
    scenario = demo()
    workload = scenarios.generate(scenario)
    whole, first = simulate(scenario, workload=workload), beginning(scenario, 60, workload)
    assert first is not None
    done = first.records.requests["status"] == Status.FINISHED
    assert 40 <= done.sum() <= 61
    for name, column in whole.records.requests.items():
        assert np.array_equal(column[done], first.records.requests[name][done]), name
    assert first.info["horizon_ns"] == workload.arrival_ns[60]
    assert (first.records.requests["status"][61:] == -1).all()


def test_the_workload_is_left_as_it_was() -> None:
    scenario = demo()
    workload = scenarios.generate(scenario)
    before = simulate(scenario, workload=workload).summary
    assert beginning(scenario, 60, workload) is not None
    assert simulate(scenario, workload=workload).summary == before


def test_it_draws_the_requests_itself_where_they_are_not_given() -> None:
    first, again = beginning("demo", 20), beginning("demo", 20, scenarios.generate(scenarios.load("demo")))
    assert first is not None
    assert again is not None
    assert first.summary == again.summary


@pytest.mark.parametrize(
    ("overrides", "requests"),
    [
        ([], 300),
        ([], 0),
        ([], -1),
        (["workload.arrivals={process: all_at_once}"], 60),
        (["workload.arrivals={process: closed_loop, concurrency: 4}"], 60),
        (["horizon=1ms"], 60),
    ],
    ids=["too many", "none", "less than none", "all at once", "closed loop", "a horizon before"],
)
def test_there_is_none_where_it_would_not_be_shorter(overrides: list[str], requests: int) -> None:
    assert beginning(demo(*overrides), requests) is None


def test_sessions_are_counted_by_those_who_wait_for_nobody() -> None:
    scenario = demo("workload.prompts={kind: sessions, turns: 3, think_time: 1s}")
    workload = scenarios.generate(scenario)
    first = beginning(scenario, 20, workload)
    assert first is not None
    assert first.info["horizon_ns"] == np.sort(workload.arrival_ns[workload.follows < 0])[20]
