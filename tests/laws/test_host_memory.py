"""The laws where KV goes to the host and back or is pinned: as in every deployment, but for these in each that is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from serving.records import MOVE_COLUMNS
from serving.request import Status
from sim.replay import replay, rerun
from tests.laws.test_law_02_blocks_are_conserved import every_step_keeps_its_blocks
from tests.laws.test_law_08_replay import live
from tests.laws.worlds import World, content, law, worlds

KINDS = ("swap", "tier", "both", "pinned")


def of_kind(world: World, kind: str) -> World:
    """The same deployment with KV memory of that kind, and so little on the device that it matters."""
    usable, size = world.engine.usable_blocks, world.engine.block_size
    settings: dict[str, Any] = {"kv_allocation": "paged", "swap_blocks": 0, "offload_blocks": 0, "pinned_prefixes": ()}
    settings |= {"preemption": "recompute", "enable_prefix_caching": kind != "swap"}
    if kind in ("swap", "both"):
        settings |= {"preemption": "swap", "swap_blocks": usable, "capacity_scheduler_policy": "max_utilization"}
        settings |= {"max_num_seqs": 16, "scheduler_reserve_full_isl": True}
    if kind in ("tier", "both"):
        settings["offload_blocks"] = usable
    if kind == "pinned":
        settings["pinned_prefixes"] = (("system", max(1, usable // 10) * size),)
    return world.with_engine(**settings)


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_ends_once_and_the_run_replays_identically(kind: str) -> None:
    moved = dict.fromkeys(MOVE_COLUMNS, 0)

    @law(40)
    @given(worlds())
    def check(world: World) -> None:
        world = of_kind(world, kind)
        records = world.run()
        assert set(records.requests["status"].tolist()) <= {Status.FINISHED, Status.REJECTED, -1}
        assert (records.steps["kv_blocks"] <= world.engine.usable_blocks).all()
        report = replay(records, world.workload, world.engine)
        assert (report.identical, report.first_difference) == (True, None)
        for name in MOVE_COLUMNS:
            moved[name] += int(records.steps[name].sum())
        assert content(world.run()) == content(records)

    check()
    swaps, fetches = moved["swap_out_blocks"] > 0, moved["fetch_blocks"] > 0
    assert (swaps, fetches) == (kind in ("swap", "both"), kind in ("tier", "both")), moved


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_durations_bring_the_whole_run_back(kind: str) -> None:
    @law(15)
    @given(worlds())
    def check(world: World) -> None:
        world = of_kind(world, kind)
        recorded = live(world, 3)
        again = rerun(recorded, world.workload, world.engine, router=world.router)
        for name, column in recorded.requests.items():
            np.testing.assert_array_equal(again.requests[name], column, err_msg=name)
        for name, column in recorded.steps.items():
            np.testing.assert_array_equal(again.steps[name], column, err_msg=name)

    check()


@pytest.mark.parametrize("column", MOVE_COLUMNS)
def test_a_changed_move_is_noticed(column: str) -> None:
    @law(10)
    @given(worlds(most_replicas=1))
    def check(world: World) -> None:
        world = of_kind(world, "both")
        records = world.run()
        if not len(records.steps["step"]):
            return
        values = records.steps[column].copy()
        values[len(values) // 2] += 1
        records.steps[column] = values
        report = replay(records, world.workload, world.engine)
        assert column in str(report.first_difference)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_and_host_slots_add_up_after_every_step(kind: str) -> None:
    @law(40)
    @given(worlds(loops=("open",), most_replicas=1))
    def check(world: World) -> None:
        every_step_keeps_its_blocks(of_kind(world, kind))

    check()


def test_steps_that_copy_take_longer_by_what_the_link_needs() -> None:

    @law(20)
    @given(worlds(loops=("open",), most_replicas=1))
    def check(world: World) -> None:
        world = of_kind(world, "swap").with_engine(async_scheduling=False)
        steps = world.run().steps
        moved = steps["swap_out_blocks"] + steps["swap_in_blocks"]
        took = steps["end_ns"] - steps["start_ns"]
        # World.run's link: 100 us a block.
        assert (took[moved > 0] > moved[moved > 0] * 100_000).all()

    check()
