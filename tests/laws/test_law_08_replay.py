"""Replaying a run's log (durations, visibility of arrivals) reproduces its step log and token times exactly."""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_backend.live import run_wall
from serving.plan import StepPlan, StepResult
from serving.records import Records
from sim.cluster import run_on_executors
from sim.replay import replay, rerun
from tests.laws.worlds import World, law, worlds


class Jittery:
    """An executor whose durations no cost model knows, and whose drafts stand as chance has it; `real` lets the time really
    pass."""

    def __init__(self, seed: int, real: bool = False) -> None:
        self.random = random.Random(seed)
        self.real = real
        self.plans: deque[StepPlan] = deque()

    def submit(self, plan: StepPlan) -> None:
        assert plan.scheduled
        self.plans.append(plan)
        assert len(self.plans) <= 2

    def collect(self) -> StepResult:
        duration = self.random.choice((1, 999, 400_000, 1_000_003))
        if self.real:
            started = time.perf_counter_ns()
            while time.perf_counter_ns() < started + duration:
                pass
        plan = self.plans.popleft()
        accepted = {row.request.index: self.random.randint(0, 4) for row in plan.scheduled}
        proposed = {row.request.index: self.random.randint(0, 4) for row in plan.scheduled}
        return StepResult(duration, None, accepted, proposed)


def live(world: World, seed: int) -> Records:
    executors = [Jittery(seed + i) for i in range(world.replicas)]
    return run_on_executors(
        world.engine, world.workload, executors, router=world.router, horizon_ns=world.horizon_ns, front=world.front
    )


@law(40)
@given(worlds(gated=True))
def test_simulated_run_replays_identically(world: World) -> None:
    records = world.run()
    report = replay(records, world.workload, world.engine, front=world.front)
    assert (report.identical, report.first_difference) == (True, None)
    assert report.steps == len(records.steps["step"])


@law(40)
@given(worlds(), st.integers(0, 1000))
def test_run_with_measured_durations_replays_identically(world: World, seed: int) -> None:
    records = live(world, seed)
    report = replay(records, world.workload, world.engine)
    assert (report.identical, report.first_difference) == (True, None)


@law(30)
@given(worlds(horizons=True, gated=True), st.integers(0, 1000))
def test_run_cut_by_the_horizon_replays_identically(world: World, seed: int) -> None:
    """With its horizon known, arrivals, routing and clients' reactions up to there are decided again as well."""
    records = live(world, seed)
    report = replay(records, world.workload, world.engine, front=world.front)
    assert (report.identical, report.first_difference) == (True, None)
    again = {"router": world.router, "front": world.front, "horizon_ns": world.horizon_ns}
    report = replay(records, world.workload, world.engine, **again)  # type: ignore[arg-type]
    assert (report.identical, report.first_difference) == (True, None)


@law(8)
@given(worlds(most_replicas=1, gated=True), st.integers(0, 1000))
def test_run_in_real_time_replays_identically(world: World, seed: int) -> None:
    """Arrivals fall where they fall: the log says which step saw them first."""
    hurried = replace(
        world.workload, arrival_ns=np.where(world.workload.arrival_ns < 0, -1, world.workload.arrival_ns // 10)
    )
    records = run_wall(world.engine, hurried, Jittery(seed, real=True), front=world.front)
    report = replay(records, hurried, world.engine, front=world.front)
    assert (report.identical, report.first_difference) == (True, None)
    assert report.steps == len(records.steps["step"])


@law(30)
@given(worlds())
def test_duration_that_was_not_the_recorded_one_is_noticed(world: World) -> None:
    records = world.run()
    if not records.finished.any():
        return
    finish = records.requests["finish_ns"]
    last = int(np.where(records.finished, finish, -1).argmax())
    end = records.steps["end_ns"].copy()
    its_last = (records.steps["replica"] == records.requests["replica"][last]) & (end == finish[last])
    end[np.flatnonzero(its_last)[0]] += 1
    changed = replace(records, steps=records.steps | {"end_ns": end})
    report = replay(changed, world.workload, world.engine)
    assert not report.identical
    assert report.first_difference


@pytest.mark.parametrize("column", ["prefill_tokens", "decode_context", "running", "waiting", "kv_blocks", "sampled"])
def test_changed_step_is_noticed(column: str) -> None:
    @law(10)
    @given(worlds(most_replicas=1))
    def check(world: World) -> None:
        records = world.run()
        if len(records.steps["step"]) == 0:
            return
        values = records.steps[column].copy()
        values[len(values) // 2] += 1
        report = replay(replace(records, steps=records.steps | {column: values}), world.workload, world.engine)
        assert report.first_difference is not None
        assert column in report.first_difference

    check()


def test_other_engine_does_not_replay() -> None:
    """Settings that decide differently are found out, and where."""

    @law(20)
    @given(worlds(loops=("open",), most_replicas=1))
    def check(world: World) -> None:
        records = world.run()
        other = replace(world.engine, max_num_batched_tokens=1, batching="chunked", enable_chunked_prefill=True)
        if (records.steps["prefill_tokens"] + records.steps["decode_sequences"]).max(initial=0) > 1:
            assert not replay(records, world.workload, other).identical

    check()


@law(30)
@given(worlds(gated=True), st.integers(0, 1000))
def test_recorded_durations_bring_the_whole_run_back(world: World, seed: int) -> None:
    """Arrivals, routing and reactions are decided again too."""
    recorded = live(world, seed)
    again = rerun(recorded, world.workload, world.engine, router=world.router, front=world.front)
    for name, column in recorded.requests.items():
        np.testing.assert_array_equal(again.requests[name], column, err_msg=name)
    for name, column in recorded.steps.items():
        np.testing.assert_array_equal(again.steps[name], column, err_msg=name)
