"""Asynchronous scheduling on the simulated clock. Steps last 10 ms whatever they hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from serving.records import Records
from sim.cluster import simulate
from tests.sim.test_cluster import ENGINE, MS, STEP, SteadyCost, workload

AHEAD = replace(ENGINE, async_scheduling=True)


def steps_of(records: Records, *names: str) -> list[tuple[int, ...]]:
    return list(zip(*(records.steps[name].tolist() for name in names), strict=True))


def test_who_arrives_during_a_step_runs_in_the_one_after_the_next() -> None:
    """The second comes at 15 ms, in step 1; step 2 has been decided by then, so it runs in step 3, from 30 ms on."""
    records = simulate(AHEAD, workload([0, 15], [6, 1]), SteadyCost())
    assert records.requests["scheduled_ns"].tolist() == [0, 30 * MS]
    assert simulate(ENGINE, workload([0, 15], [6, 1]), SteadyCost()).requests["scheduled_ns"].tolist() == [0, 20 * MS]


def test_a_step_is_decided_when_the_one_before_it_starts() -> None:
    records = simulate(AHEAD, workload([0], [4]), SteadyCost())
    decided = steps_of(records, "scheduled_ns", "start_ns", "end_ns")
    assert decided[:4] == [(0, 0, STEP)] + [((i - 1) * STEP, i * STEP, (i + 1) * STEP) for i in (1, 2, 3)]


def test_no_step_is_lost_on_answers_whose_length_is_foreseen() -> None:
    load = workload([0, 0, 0, 0], [1, 5, 9, 2])
    ahead, plain = (simulate(engine, load, SteadyCost()) for engine in (AHEAD, ENGINE))
    for name in ("first_token_ns", "finish_ns", "scheduled_ns"):
        assert ahead.requests[name].tolist() == plain.requests[name].tolist()
    busy = ahead.steps["prefill_sequences"] + ahead.steps["decode_sequences"] > 0
    assert int(busy.sum()) == len(plain.steps["step"]) == 9


def test_an_answer_that_ends_early_wastes_a_row() -> None:
    load = workload([0, 0], [3, 9])
    load.max_tokens[:] = 20
    ahead, plain = (simulate(engine, load, SteadyCost()) for engine in (AHEAD, ENGINE))
    assert ahead.requests["finish_ns"].tolist() == plain.requests["finish_ns"].tolist()
    assert ahead.steps["sampled"].sum() == plain.steps["sampled"].sum() + 2


def test_an_idle_engine_answers_as_quickly() -> None:
    load = workload([0, 200, 400], [4, 4, 4])
    ahead, plain = (simulate(engine, load, SteadyCost()) for engine in (AHEAD, ENGINE))
    assert ahead.requests["first_token_ns"].tolist() == plain.requests["first_token_ns"].tolist()


def test_a_client_that_reacts_to_an_answer_is_seen_one_step_late() -> None:
    """The next turn is sent when the first answer is out, at 20 ms. A step of the other request starts then that was decided
    before, so the turn runs from 30 ms on."""
    load = workload([0, 0, -1], [2, 9, 1], follows=[-1, -1, 0])
    load.think_ns[:] = 0
    records = simulate(AHEAD, load, SteadyCost())
    assert records.requests["arrival_ns"][2] == 20 * MS
    assert records.requests["scheduled_ns"][2] == 30 * MS


@pytest.mark.parametrize("concurrency", [1, 3])
def test_closed_loops_run_to_the_end(concurrency: int) -> None:
    load = workload([-1] * 12, [1, 4, 7] * 4, concurrency=concurrency)
    records = simulate(AHEAD, load, SteadyCost())
    assert records.finished.all()
    assert (records.steps["step"] == np.arange(len(records.steps["step"]))).all()


def test_what_a_horizon_cuts_is_in_flight() -> None:
    records = simulate(AHEAD, workload([0], [9]), SteadyCost(), horizon_ns=35 * MS)
    assert records.requests["output_tokens"].tolist() == [3]
    assert records.steps["end_ns"].tolist() == [STEP, 2 * STEP, 3 * STEP]
