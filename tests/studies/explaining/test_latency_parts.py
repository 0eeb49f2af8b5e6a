"""Where the time of requests went: parts sum to the latency, and each is what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.records import Records
from serving.rows import rows_of
from sim.cluster import simulate
from studies.explaining.latency_parts import PARTS, divide_steps, latency_parts
from tests.laws.worlds import World, law, roofline, worlds

ENGINE = EngineConfig(num_gpu_blocks=2001, max_model_len=8192, max_num_batched_tokens=512, enable_prefix_caching=False)


def parts_of(records: Records, cost: bool = True) -> Any:
    replicas = int(str(records.info["replicas"]))
    rows = rows_of(records)
    assert rows is not None
    return latency_parts(records, rows, divide_steps(records, rows, [roofline() if cost else None] * replicas))


def run(lengths: list[tuple[int, int]], arrivals_ms: list[float], **engine: Any) -> Records:
    n = len(lengths)
    prompts, answers = (np.array(column, dtype=np.int64) for column in zip(*lengths, strict=True))
    zero, nobody = np.zeros(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    arrivals = np.array([round(at * 1e6) for at in arrivals_ms], dtype=np.int64)
    workload = Workload(arrivals, prompts, answers, answers, zero, zero, nobody, nobody, zero)
    return simulate(replace(ENGINE, **engine), workload, roofline())


@given(worlds())
@law(60)
def test_parts_of_a_finished_request_sum_to_its_latency(world: World) -> None:
    records = world.run()
    found, r = parts_of(records), records.requests
    done = records.finished & (r["first_token_ns"] >= 0)
    assert np.array_equal(found.ttft()[done], (r["first_token_ns"] - r["arrival_ns"])[done])
    assert np.array_equal(found.e2e()[done], (r["finish_ns"] - r["arrival_ns"])[done])
    for name in PARTS:
        assert (found.before[name][done] >= 0).all(), name
        assert (found.after[name][done] >= 0).all(), name


def test_alone_nothing_stands_in_the_way() -> None:
    found = parts_of(run([(1000, 20)], [0]))
    assert set(found.of(0)) == {"own_prefill", "decode"}
    assert found.before["own_prefill"][0] == found.ttft()[0]


def test_a_long_prompt_delays_those_that_decode_beside_it() -> None:
    records = run([(100, 50), (4000, 5)], [0, 20])
    found, alone = parts_of(records), parts_of(run([(100, 50)], [0]))
    assert found.after["other_prefill"][0] > 0
    # Its own decodes take what they took alone, but for the few that it shares with the other answer.
    assert found.after["decode"][0] == pytest.approx(alone.after["decode"][0], rel=0.02)


def test_who_comes_behind_a_long_prompt_waits_in_the_queue() -> None:
    found = parts_of(run([(4000, 5), (100, 5)], [0, 1]))
    assert found.before["queue"][1] > 3 * found.before["own_prefill"][1]


def test_steps_of_other_prompts_alone_count_as_theirs() -> None:
    records = run([(100, 50), (400, 5), (400, 5)], [0, 20, 30], batching="prefill_first")
    found = parts_of(records)
    assert found.after["other_prefill"][0] > 0
    assert not found.after["left_out"].any()


def test_what_a_preemption_costs_stands_apart() -> None:
    records = run([(200, 100), (200, 100), (200, 100)], [0, 0, 0], num_gpu_blocks=45, max_model_len=400)
    preempted = np.flatnonzero(records.requests["preemptions"] > 0)
    assert len(preempted)
    found = parts_of(records)
    assert (found.after["preemption"][preempted] > 0).all()
    assert not np.delete(found.after["preemption"], preempted).any()


def test_without_step_costs_tokens_divide_a_step() -> None:
    found = parts_of(run([(100, 50), (4000, 5)], [0, 20]), cost=False)
    assert found.shared_by == "tokens"
    # Of a step with 511 prompt tokens and one decode nearly all is the prompt's.
    assert found.after["other_prefill"][0] > found.after["decode"][0] * 0.1
