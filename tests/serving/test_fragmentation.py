"""Fragmentation in numbers: what requests hold follows from the rows of a run, and equals what the scheduler knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from serving.config import EngineConfig
from serving.fragmentation import external_percent, held_tokens, internal_percent
from serving.metrics import summary
from serving.plan import StepPlan
from serving.records import Records
from serving.request import Status
from serving.rows import rows_of
from serving.scheduler import Scheduler
from sim import cluster
from sim.cluster import simulate
from tests.laws.worlds import World, law, worlds
from tests.sim.test_cluster import SteadyCost, workload


class Watched(Scheduler):
    """Notes the tokens whose KV is held after each decision."""

    held: list[int]

    def schedule(self, now_ns: int = 0) -> StepPlan:
        plan = super().schedule(now_ns)
        Watched.held.append(sum(request.computed for request in self.running))
        return plan


@law(60)
@given(worlds(most_replicas=1, horizons=True))
def test_tokens_that_are_held_follow_from_the_rows(world: World) -> None:
    world = world.with_engine(
        enable_prefix_caching=False, async_scheduling=False, speculation="none", num_speculative_tokens=0,
        preemption="recompute", swap_blocks=0, offload_blocks=0, pinned_prefixes=(),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        Watched.held = []
        patch.setattr(cluster, "Scheduler", Watched)
        records = world.run(fast=False)
    rows = rows_of(records)
    assert rows is not None
    found = held_tokens(records, rows)
    assert found.tolist() == Watched.held[: len(found)]
    percent = internal_percent(records, world.engine)
    assert percent is None or 0 <= percent < 100


def alone(**settings: Any) -> tuple[EngineConfig, Records]:
    """One request of 16 tokens and an answer of 4; it may declare more."""
    engine = EngineConfig(9, enable_prefix_caching=False, **settings)
    sent = workload([0], [4], [16])
    sent.max_tokens[:] = 49
    return engine, simulate(engine, sent, SteadyCost())


def test_paged_request_wastes_the_end_of_its_last_block() -> None:
    """16, 17, 18 and 19 tokens in one block of 16, and then in two."""
    engine, records = alone()
    assert internal_percent(records, engine) == pytest.approx(100 * (1 - (16 + 17 + 18 + 19) / (16 + 3 * 32)))
    assert external_percent(records, engine) == 0


def test_contiguous_request_wastes_what_it_might_have_become() -> None:
    """16 + 49 tokens need four blocks, since the last one is never written."""
    engine, records = alone(kv_allocation="contiguous")
    assert internal_percent(records, engine) == pytest.approx(100 * (1 - (16 + 17 + 18 + 19) / (4 * 64)))
    assert external_percent(records, engine) == 0


def test_free_blocks_outside_the_widest_hole_are_stranded() -> None:
    engine = EngineConfig(10, enable_prefix_caching=False, kv_allocation="contiguous")
    records = simulate(engine, workload([0, 0, 0], [2, 9, 2], [10] * 3), SteadyCost())
    assert records.stranded.tolist() == [[0, step, 1] for step in range(2, 9)]  # one block of nine between two holes
    assert external_percent(records, engine) == pytest.approx(100 * 7 / (2 * 5 + 7 * 7))


def test_summary_says_it_where_nothing_is_shared() -> None:
    engine, records = alone()
    assert summary(records, engine=engine)["kv_internal_fragmentation_percent"] == internal_percent(records, engine)
    shared = replace(engine, enable_prefix_caching=True)
    assert "kv_internal_fragmentation_percent" not in summary(records, engine=shared)


def test_who_left_a_replica_before_its_first_step_ended_held_nothing() -> None:
    """The horizon cuts the only step of the second replica, whose request's client has left by then."""
    engine = EngineConfig(9, enable_prefix_caching=False)
    sent = workload([0, 1], [4, 4], [16, 16])
    records = simulate(engine, sent, SteadyCost(), replicas=2)
    steps = {name: column[records.steps["replica"] == 0] for name, column in records.steps.items()}
    status = np.array([Status.FINISHED, Status.ABORTED])
    cut = replace(
        records,
        steps=steps,
        requests=records.requests | {"status": status},
        chunks=records.chunks[records.chunks[:, 0] == 0],
        aborted=np.array([[1, 0, 1]]),
    )
    rows = rows_of(cut)
    assert rows is not None
    assert held_tokens(cut, rows).tolist() == [16, 17, 18, 19]
