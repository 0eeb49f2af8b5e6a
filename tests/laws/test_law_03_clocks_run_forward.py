"""arrival <= first scheduled <= first token <= finish; no clock goes back."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from serving.request import Status
from tests.laws.worlds import World, law, worlds


@law(40)
@given(worlds(horizons=True, gated=True))
def test_time_stamps_of_a_request_are_in_order(world: World) -> None:
    r = world.run().requests
    finished = r["status"] == Status.FINISHED
    assert (r["arrival_ns"][finished] <= r["scheduled_ns"][finished]).all()
    assert (r["scheduled_ns"][finished] <= r["first_token_ns"][finished]).all()
    assert (r["first_token_ns"][finished] <= r["finish_ns"][finished]).all()
    one = finished & (r["output_tokens"] == 1)
    assert (r["first_token_ns"][one] == r["finish_ns"][one]).all()
    more = finished & (r["output_tokens"] > 1)
    assert (r["first_token_ns"][more] < r["finish_ns"][more]).all()


@law(40)
@given(worlds(horizons=True, gated=True))
def test_steps_of_a_replica_follow_each_other(world: World) -> None:
    steps = world.run().steps
    for replica in range(world.replicas):
        mine = steps["replica"] == replica
        number, decided = steps["step"][mine], steps["scheduled_ns"][mine]
        start, end = steps["start_ns"][mine], steps["end_ns"][mine]
        assert (number == np.arange(len(number))).all()
        assert (decided <= start).all()
        assert (start <= end).all()
        assert (start[1:] >= end[:-1]).all()
        assert (start >= 0).all()


@law(25)
@given(worlds(horizons=True, gated=True))
def test_nothing_ends_behind_the_horizon(world: World) -> None:
    records = world.run()
    if world.horizon_ns is not None:
        assert (records.steps["end_ns"] <= world.horizon_ns).all()
        assert (records.requests["finish_ns"] <= world.horizon_ns).all()


@law(25)
@given(worlds(loops=("sessions", "closed")))
def test_next_turn_is_sent_a_pause_after_the_answer(world: World) -> None:
    records, w = world.run(), world.workload
    for i in np.flatnonzero(records.submitted & (w.follows >= 0)).tolist():
        awaited = [w.follows[i]] if w.joins is None else [w.follows[i], *w.joins[w.joins[:, 0] == i, 1]]
        finish = records.requests["finish_ns"][awaited].max()
        assert records.requests["arrival_ns"][i] == finish + w.think_ns[i]


@law(25)
@given(worlds(loops=("closed",)))
def test_closed_loop_never_has_more_in_flight_than_clients(world: World) -> None:
    r = world.run().requests
    sent = r["status"] == Status.FINISHED
    for at in r["arrival_ns"][sent].tolist():
        in_flight = (r["arrival_ns"][sent] <= at) & (r["finish_ns"][sent] > at)
        assert world.workload.concurrency is not None
        assert int(in_flight.sum()) <= world.workload.concurrency
