"""Changing a policy changes no drawn inter-arrival, length, prompt or think time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scenarios
from scenarios.workload import Workload

OPEN = """
schema_version: 1
name: draws
model: Qwen3-0.6B
hardware: H100
workload:
  requests: 60
  arrivals: {process: gamma, rate: 6, burstiness: 0.5}
  input: {distribution: lognormal, median: 200, sigma: 0.8, max: 2000}
  output: {distribution: lognormal, median: 50, sigma: 0.7, max: 400}
  prompts: {kind: shared_prefix, num_prefixes: 4, prefix_tokens: 100}
  tenants: [{name: gold, weight: 1, priority: 0}, {name: basic, weight: 3, priority: 1}]
seed: 3
"""
SESSIONS = OPEN.replace(
    "{kind: shared_prefix, num_prefixes: 4, prefix_tokens: 100}",
    "{kind: sessions, turns: {distribution: uniform, min: 1, max: 5}, "
    "think_time: {distribution: exponential, mean: 2s}}",
)
CLOSED = OPEN.replace(
    "{process: gamma, rate: 6, burstiness: 0.5}",
    "{process: closed_loop, concurrency: 8, think_time: {distribution: exponential, mean: 1s}}",
)
POLICIES = [
    "engine.policy=priority",
    "engine.policy=longest_prefix",
    "engine.policy=fair",
    "engine.batching=decode_first",
    "engine.kv_allocation=contiguous",
    "engine=sglang",
    "workload.predictor={kind: noisy_oracle, cv: 1}",
    "engine.batching=static",
    "engine.batching=prefill_first",
    "engine.enable_prefix_caching=false",
    "engine.enable_chunked_prefill=false",
    "engine.max_num_seqs=3",
    "engine.max_num_batched_tokens=40960",
    "engine.long_prefill_token_threshold=64",
    "engine.scheduler_reserve_full_isl=false",
    "engine.watermark=0.05",
    "engine.num_gpu_blocks=3000",
    "engine.async_scheduling=true",
    "engine.speculation={method: ngram, k: 3, acceptance: 0.7, found: 0.5}",
    "engine.speculation={method: draft, acceptance: {mean: 0.7, concentration: 10}, draft_cost: 0.1, off_above: 8}",
    "replicas=4",
    "router=least_requests",
    "hardware=A100-80G",
    "model=Qwen3-8B",
    "name=other",
]
COLUMNS = (
    "arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "tenant", "session", "follows", "think_ns",
    "segment_offset", "segment_tokens",
)  # fmt: skip


def drawn(text: str, *overrides: str) -> Workload:
    return scenarios.generate(scenarios.loads(text, overrides=overrides))


def columns(workload: Workload) -> dict[str, Any]:
    found = {name: np.asarray(getattr(workload, name)).tolist() for name in COLUMNS}
    return found | {"keys": list(workload.segment_keys), "concurrency": workload.concurrency}


@pytest.mark.parametrize("text", [OPEN, SESSIONS, CLOSED], ids=["open", "sessions", "closed"])
@pytest.mark.parametrize("policy", POLICIES)
def test_policy_changes_nothing_that_is_drawn(text: str, policy: str) -> None:
    unchanged = ("engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=40960")
    overrides = unchanged if policy in unchanged else (policy,)
    assert columns(drawn(text, *overrides)) == columns(drawn(text))


@pytest.mark.parametrize("text", [OPEN, SESSIONS], ids=["open", "sessions"])
def test_each_axis_draws_from_a_stream_of_its_own(text: str) -> None:
    base = drawn(text)
    faster = drawn(text, "workload.arrivals.rate=60")
    assert faster.arrival_ns.tolist() != base.arrival_ns.tolist()
    assert faster.output_tokens.tolist() == base.output_tokens.tolist()
    assert faster.prompt_tokens.tolist() == base.prompt_tokens.tolist()
    longer = drawn(text, "workload.output.median=90")
    assert longer.output_tokens.tolist() != base.output_tokens.tolist()
    assert longer.arrival_ns.tolist() == base.arrival_ns.tolist()
    assert longer.tenant.tolist() == base.tenant.tolist()
    assert longer.think_ns.tolist() == base.think_ns.tolist()


def test_seed_changes_what_is_drawn() -> None:
    assert columns(drawn(OPEN, "seed=4")) != columns(drawn(OPEN))
