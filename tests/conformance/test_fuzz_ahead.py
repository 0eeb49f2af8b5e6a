"""Engines that work ahead, against the plain scheduler: speculation and asynchronous scheduling, each alone and both together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.conformance.random_runs import ahead_run, random_run
from tests.conformance.subjects import SUBJECTS
from tests.conformance.test_fuzz import decisions, first_difference
from tests.oracle.scheduler import OracleScheduler

BATCHES = 8
RUNS_A_BATCH = 25


@pytest.mark.parametrize("batch", range(BATCHES))
def test_engines_that_work_ahead_decide_as_the_oracle(batch: int) -> None:
    compared = 0
    for seed in range(batch * RUNS_A_BATCH, (batch + 1) * RUNS_A_BATCH):
        run = ahead_run(seed)
        if run.clients:
            difference = first_difference(run, SUBJECTS["readable"])
            assert difference is None, f"seed {seed}: {difference}\n{run.config}\n{run.clients}"
            compared += 1
    assert compared >= 20


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_fast_path_decides_one_step_ahead_as_the_oracle(batch: int) -> None:
    compared = 0
    for seed in range(batch * 2 * RUNS_A_BATCH, (batch + 1) * 2 * RUNS_A_BATCH):
        run = random_run(seed, common=True)
        run = replace(run, config=replace(run.config, async_scheduling=True))
        if run.clients:
            difference = first_difference(run, SUBJECTS["fast"])
            assert difference is None, f"seed {seed}: {difference}\n{run.config}\n{run.clients}"
            compared += 1
    assert compared >= 40


def test_runs_that_work_ahead_reach_what_they_are_meant_to_reach() -> None:
    seen: Counter[str] = Counter()
    for seed in range(BATCHES * RUNS_A_BATCH):
        run = ahead_run(seed)
        if not run.clients:
            continue
        config = run.config
        log = decisions(run, OracleScheduler)
        rows = [row for step in log for row in step["scheduled"]]
        k = config.num_speculative_tokens
        seen["asynchronous"] += config.async_scheduling
        seen["both"] += config.async_scheduling and k > 0
        seen["draft model"] += config.speculation == "draft"
        seen["drafts cut"] += any(0 < row[4] < k for row in rows)
        seen["padded"] += any(row[5] for row in rows)
        seen["preempted with drafts"] += k > 0 and any(step["preempted"] for step in log)
        seen["preempted in flight"] += config.async_scheduling and any(step["preempted"] for step in log)
        seen["ended while it waited"] += any(set(step["finished"]) & set(step["waiting"]) for step in log)
        seen["off and on again"] += len({step["propose"] for step in log}) > 1
        seen["aborted"] += any(step["aborted"] for step in log)
    assert min(seen.values()) >= 5, seen
