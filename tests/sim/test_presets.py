"""Engines of other makers on the simulated clock. Steps last 10 ms whatever they hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from serving.fast_scheduler import FastScheduler
from sim.cluster import simulate
from tests.laws.worlds import content
from tests.sim.test_cluster import ENGINE, MS, SteadyCost, workload

SGLANG = replace(
    ENGINE, batching="prefill_first", capacity_scheduler_policy="new_token_ratio", async_scheduling=True
)  # fmt: skip
TRTLLM = replace(
    ENGINE, capacity_scheduler_policy="guaranteed_no_evict", enable_chunked_prefill=False, async_scheduling=True
)  # fmt: skip


@pytest.mark.parametrize("engine", [SGLANG, TRTLLM], ids=["sglang", "trtllm"])
def test_who_arrives_during_a_step_is_seen_one_step_late(engine) -> None:
    records = simulate(engine, workload([0, 15], [6, 1]), SteadyCost())
    assert records.requests["scheduled_ns"].tolist() == [0, 30 * MS]


def test_answers_stand_still_while_sglang_computes_a_prompt() -> None:
    """The second prompt runs alone from 30 ms on, so that the first answer's fourth token is 10 ms late."""
    load = workload([0, 15], [6, 1])
    alone, both = (simulate(replace(SGLANG, batching=b), load, SteadyCost()) for b in ("chunked", "prefill_first"))
    assert both.requests["finish_ns"][0] == alone.requests["finish_ns"][0] + 10 * MS


@pytest.mark.parametrize("engine", [SGLANG, TRTLLM], ids=["sglang", "trtllm"])
def test_closed_loops_start_with_a_burst_and_go_on_as_answers_come(engine) -> None:
    load = workload([-1] * 12, [4, 7, 9] * 4, concurrency=3)
    records = simulate(engine, load, SteadyCost())
    assert records.finished.all()
    arrivals, ends = sorted(records.requests["arrival_ns"].tolist()), sorted(records.requests["finish_ns"].tolist())
    assert arrivals[:3] == [0, 0, 0]
    assert arrivals[3:] == ends[:9]


@pytest.mark.parametrize("policy", ["guaranteed_no_evict", "new_token_ratio"])
def test_where_memory_never_binds_the_fast_path_takes_every_policy(policy: str) -> None:
    engine = replace(
        TRTLLM, capacity_scheduler_policy=policy, num_gpu_blocks=97, block_size=16, max_model_len=96, max_num_seqs=16,
        max_num_batched_tokens=96,
    )  # fmt: skip
    assert FastScheduler.supports(engine)
    rng = np.random.default_rng(4)
    load = workload([-1] * 60, rng.integers(1, 60, 60).tolist(), concurrency=9)
    load.max_tokens[:] = 60
    fast, plain, vllm = (
        simulate(which, load, SteadyCost(), fast=quick)
        for which, quick in (
            (engine, True),
            (engine, False),
            (replace(engine, capacity_scheduler_policy="max_utilization"), True),
        )
    )
    assert content(fast) == content(plain) == content(vllm)
    assert fast.finished.all()
