"""The fast path against the readable scheduler on random deployments: every row of the records is the same.

The readable scheduler runs one step at a time and knows no leap, no heap and no extents; the fast path is right if and only if
nothing in the records tells which of them made them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from scenarios.hardware import hardware
from scenarios.models import model
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.fast_scheduler import FastScheduler
from serving.records import Records
from sim.cluster import simulate
from sim.roofline import Roofline
from tests.laws.worlds import content

BATCHES = 6
SETTINGS_A_BATCH = 40
MS = 1_000_000


@cache
def roofline() -> Roofline:
    return Roofline(model("Qwen3-14B"), hardware("H100"))


@dataclass(frozen=True)
class Deployment:
    engine: EngineConfig
    workload: Workload
    replicas: int
    router: str
    horizon_ns: int | None

    def run(self, fast: bool, leaps: bool = True) -> Records:
        return simulate(
            self.engine,
            self.workload,
            roofline(),
            replicas=self.replicas,
            router=self.router,
            horizon_ns=self.horizon_ns,
            fast=fast,
            leaps=leaps,
        )


def random_workload(rng: np.random.Generator) -> Workload:
    """Open loops (some with many arrivals at one instant), closed loops, sessions; texts of their own or behind one of three
    system prompts; from prompts of a token to prompts of thousands."""
    n = int(rng.integers(1, 60))
    prompts = np.clip(np.rint(rng.normal(512, 256, n)), 2, 2048).astype(np.int64) // int(rng.choice([1, 8]))
    outputs = np.clip(np.rint(rng.normal(128, 64, n)), 2, 512).astype(np.int64) // int(rng.choice([1, 8, 60]))
    prompts, outputs = np.maximum(prompts, 1), np.maximum(outputs, 1)
    arrivals = np.cumsum(rng.exponential(1e9 / float(rng.choice([2, 20, 200])), n)).astype(np.int64)
    if rng.random() < 0.3:
        arrivals = arrivals // (100 * MS) * (100 * MS)
    follows, think = np.full(n, -1), np.zeros(n, dtype=np.int64)
    concurrency = int(rng.integers(1, 8)) if rng.random() < 0.4 else None
    if concurrency is None and n > 4 and rng.random() < 0.4:
        follows[n // 2 :] = np.arange(n - n // 2)
        think[n // 2 :] = int(rng.integers(0, 2)) * 10 * MS
        arrivals = np.where(follows >= 0, -1, arrivals)
    offset, keys, tokens = None, [], None
    if rng.random() < 0.5:
        # Some prompts quote the answer of any other request, which may be running, over or still to come.
        offset = np.arange(n + 1, dtype=np.int64) * 3
        quoted = rng.integers(0, n, n)
        keys = [k for i in range(n) for k in (f"system{rng.integers(3)}", f"out:{quoted[i]}", f"user{i}")]
        shared = np.minimum(prompts, int(rng.integers(0, 200)))
        quotes = np.minimum(prompts - shared, rng.integers(0, 2, n) * outputs[quoted] * int(rng.integers(0, 2)))
        tokens = np.stack([shared, quotes, prompts - shared - quotes], axis=1).ravel()
    zeros = np.zeros(n, dtype=np.int64)
    return Workload(
        arrivals,
        prompts,
        outputs,
        outputs.copy(),
        zeros,
        zeros,
        zeros - 1,
        follows.astype(np.int64),
        think,
        concurrency=concurrency,
        segment_offset=offset,
        segment_keys=keys,
        segment_tokens=tokens,
    )


def random_deployment(seed: int) -> Deployment:
    """Memory from just enough for the longest request up to plenty."""
    rng = np.random.default_rng(seed)
    workload = random_workload(rng)
    block_size = int(rng.choice([16, 4, 1]))
    longest = int((workload.prompt_tokens + workload.output_tokens).max())
    blocks = int(-(-longest // block_size) * rng.choice([1.0, 1.5, 4, 50])) + 2
    engine = EngineConfig(
        num_gpu_blocks=blocks,
        block_size=block_size,
        max_num_seqs=int(rng.choice([2, 8, 64])),
        max_num_batched_tokens=int(rng.choice([64, 300, 2048, 65])),
        enable_prefix_caching=bool(rng.random() < 0.6),
        watermark=float(rng.choice([0, 0, 0.05])),
        scheduler_reserve_full_isl=bool(rng.random() < 0.8),
    )
    return Deployment(
        engine,
        workload,
        replicas=int(rng.choice([1, 1, 3])),
        router=str(rng.choice(["round_robin", "least_requests"])),
        horizon_ns=3_000 * MS if rng.random() < 0.2 else None,
    )


def asynchronous_deployment(seed: int) -> Deployment:
    """The same, decided one step ahead; some answers end before their client's declaration, which nobody can foresee."""
    rng = np.random.default_rng((1, seed))
    deployment = random_deployment(seed)
    n = len(deployment.workload)
    deployment.workload.max_tokens += rng.integers(0, 30, n) * (rng.random(n) < rng.choice([0, 0.5]))
    engine = replace(
        deployment.engine,
        async_scheduling=True,
        num_gpu_blocks=max(3, int(deployment.engine.num_gpu_blocks * rng.choice([0.5, 1, 1, 1.2]))),
        max_model_len=int(rng.choice([700, 1500, 8192])),
        enable_chunked_prefill=bool(rng.random() < 0.85),
    )
    return replace(deployment, engine=engine)


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("make", [random_deployment, asynchronous_deployment])
def test_records_do_not_tell_which_scheduler_made_them(make: Callable[[int], Deployment], batch: int) -> None:
    preemptions = leaps = 0
    for seed in range(batch * SETTINGS_A_BATCH, (batch + 1) * SETTINGS_A_BATCH):
        deployment = make(seed)
        assert FastScheduler.supports(deployment.engine)
        readable = deployment.run(fast=False)
        fast = deployment.run(fast=True)
        expected = content(readable)
        assert content(fast) == expected, f"setting {seed}"
        assert content(deployment.run(fast=True, leaps=False)) == expected, f"setting {seed} without leaps"
        preemptions += len(readable.preempted)
        leaps += len(fast.steps["step"]) > int(fast.info["leaps"])  # type: ignore[call-overload]
    assert preemptions > 0
    assert leaps > SETTINGS_A_BATCH // 2
