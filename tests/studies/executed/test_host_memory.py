"""KV that really goes to the host and back, and pinned prefixes, executed on the CPU engine: each changes what is decided, and the run
is decided again in replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios import loads
from studies.results import Run, load, save
from studies.run import execute, replayed

pytest.importorskip("torch", reason="executions need the extra gpu")

GROWING = """
model: qwen3-tiny
hardware: cpu
engine: {num_gpu_blocks: 16, max_model_len: 128, max_num_seqs: 8, enable_prefix_caching: false, %s}
workload:
  requests: 6
  arrivals: all_at_once
  input: 40
  output: 30
"""
TALKING = """
model: qwen3-tiny
hardware: cpu
engine: {num_gpu_blocks: 14, max_model_len: 128, %s}
workload:
  requests: 12
  arrivals: {process: constant, rate: 40}
  prompts: {kind: shared_prefix, num_prefixes: 3, prefix_tokens: 64, zipf: 0}
  input: 30
  output: 4
"""


def executed(text: str, engine: str) -> Run:
    """The run, after it was decided again."""
    run = execute(loads(text % engine), device="cpu")
    assert run.workload is not None
    report = replayed(run, run.workload)
    assert (report.identical, report.first_difference) == (True, None)
    return run


def moved(run: Run, name: str) -> int:
    return int(run.records.steps[name].sum())


def test_swapped_requests_are_copied_and_recomputed_ones_computed_again() -> None:
    swap, recompute = executed(GROWING, "preemption: swap, swap_space: 0.01"), executed(GROWING, "watermark: 0")
    assert swap.summary["preemptions"] > 0
    assert recompute.summary["preemptions"] > 0
    assert moved(swap, "swap_out_blocks") == moved(swap, "swap_in_blocks") > 0
    assert swap.records.steps["prefill_tokens"].sum() == 6 * 40
    assert recompute.records.steps["prefill_tokens"].sum() > 6 * 40


def test_the_host_tier_is_hit_where_the_device_has_evicted(tmp_path: Path) -> None:
    tier, none = executed(TALKING, "kv_offloading_size: 0.05"), executed(TALKING, "watermark: 0")
    assert moved(tier, "fetch_blocks") > 0
    assert tier.summary["kv_cache_hit_percent"] > none.summary["kv_cache_hit_percent"]
    save(tier, tmp_path / "run")
    assert moved(load(tmp_path / "run"), "fetch_blocks") == moved(tier, "fetch_blocks")


def test_a_pinned_prefix_is_hit_where_others_have_evicted_the_rest() -> None:
    pinned, none = executed(TALKING, 'pinned_prefixes: {"sys:0": 64}'), executed(TALKING, "watermark: 0")
    assert pinned.summary["kv_cache_hit_percent"] > none.summary["kv_cache_hit_percent"]
