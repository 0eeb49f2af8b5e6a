"""What `serving.rows` finds out about who was in which step equals what a replay of the run sees, row by row."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sim.replay
from serving.config import EngineConfig
from serving.plan import StepPlan
from serving.records import Records
from serving.rows import rows_of
from serving.scheduler import Scheduler
from tests.laws.test_law_08_replay import live
from tests.laws.worlds import World, law, worlds

Seen = dict[tuple[int, int], list[tuple[int, int, int]]]
"""By replica and step: request, tokens and context of each row."""


def seen_by_replay(records: Records, world: World) -> Seen:
    """Rows of every step, as a replay decides them."""
    seen: Seen = defaultdict(list)
    number = -1

    class Watched(Scheduler):
        def __init__(self, config: EngineConfig) -> None:
            nonlocal number
            number += 1
            self.number = replicas[number]
            super().__init__(config)

        def schedule(self, now_ns: int = 0) -> StepPlan:
            plan = super().schedule(now_ns)
            rows = ((row.request.index, row.tokens, row.context) for row in plan.scheduled)
            seen[self.number, plan.step] = sorted(rows)
            return plan

    replicas = np.unique(records.steps["replica"]).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim.replay, "Scheduler", Watched)
        report = sim.replay.replay(records, world.workload, world.engine, front=world.front)
        assert report.first_difference is None
    return seen


def found(records: Records) -> tuple[Seen, Seen]:
    """Rows of every step, as they follow from the records: by step and by request."""
    rows = rows_of(records)
    assert rows is not None
    replica, number = records.steps["replica"].tolist(), records.steps["step"].tolist()
    by_step = {(replica[i], number[i]): [tuple(row) for row in rows.of_step(i).tolist()] for i in range(len(number))}
    by_request: Seen = {key: [] for key in by_step}
    for request in range(len(records.requests["status"])):
        for i, tokens, context in rows.of_request(request).tolist():
            by_request[replica[i], number[i]].append((request, tokens, context))
    return by_step, by_request


def check(records: Records, world: World) -> None:
    seen = seen_by_replay(records, world)
    by_step, by_request = found(records)
    for key, rows in by_step.items():
        assert rows == seen[key], key
        assert by_request[key] == rows, key


@law(200)
@given(worlds(horizons=True, gated=True))
def test_rows_of_a_simulated_run(world: World) -> None:
    check(world.run(), world)


@law(120)
@given(worlds(horizons=True, gated=True), st.integers(0, 1000))
def test_rows_of_a_run_with_other_durations(world: World, seed: int) -> None:
    check(live(world, seed), world)


@law(120)
@given(worlds(horizons=True, gated=True))
def test_rows_are_logged_alike_by_all_replicas(world: World) -> None:
    """Leaps, single steps, and the readable scheduler."""
    whole = world.run()
    for options in ({"leaps": False}, {"fast": False}):
        np.testing.assert_array_equal(world.run(**options).chunks, whole.chunks, err_msg=str(options))


@law(60)
@given(worlds(horizons=True, gated=True))
def test_rows_add_up_to_the_steps(world: World) -> None:
    records = world.run()
    rows, steps = rows_of(records), records.steps
    assert rows is not None
    c, n = rows.chunks, len(steps["step"])
    prompts, decodes = c["decodes"] == 0, c["decodes"] > 0

    def per_step(of: Any, weights: Any = None) -> Any:
        return np.bincount(c["step"][of], None if weights is None else weights[of], n).astype(np.int64)

    np.testing.assert_array_equal(per_step(prompts), steps["prefill_sequences"])
    np.testing.assert_array_equal(per_step(prompts, c["tokens"]), steps["prefill_tokens"])
    along = np.zeros(n + 1, dtype=np.int64)
    np.add.at(along, rows.stretches["first"], 1)
    np.add.at(along, rows.stretches["last"] + 1, -1)
    along = np.cumsum(along)[:-1] * (steps["decode_sequences"] > 0)
    np.testing.assert_array_equal(along + per_step(decodes), steps["decode_sequences"])


@law(20)
@given(worlds())
def test_records_without_logged_rows_have_none(world: World) -> None:
    records = world.run()
    older = replace(records, chunks=records.chunks[:0])
    assert (rows_of(older) is None) == bool(records.steps["prefill_sequences"].any())
