"""Requests whose KV goes to the host and back, for the engines of either device."""

from __future__ import annotations

from typing import Any

import torch

from gpu_backend.engine import Engine
from serving.host_memory import moved_blocks
from serving.request import Request
from tests.gpu_backend.shapes import Served, serve

ROOMY: dict[str, Any] = {"num_gpu_blocks": 65, "block_size": 4, "max_model_len": 64, "max_num_seqs": 8}
SWAPPING = {**ROOMY, "num_gpu_blocks": 17, "preemption": "swap", "swap_blocks": 32, "enable_prefix_caching": False}
OFFLOADING = {**ROOMY, "num_gpu_blocks": 11, "offload_blocks": 24}


def growing() -> list[Request]:
    """Four that together outgrow `SWAPPING`."""
    return [Request(i, ((f"p{i}", 11 + i),), 14 - i, output_key=f"out:{i}") for i in range(4)]


def returning() -> list[Request]:
    """Two prompts in turn, each of which evicts the other from `OFFLOADING`."""
    return [Request(i, ((f"text{i % 2}", 25), (f"own{i}", 3)), 2, output_key=f"out:{i}") for i in range(6)]


def moved(served: Served) -> tuple[int, ...]:
    """Blocks that were swapped out and in, offloaded and fetched."""
    return tuple(map(sum, zip(*(moved_blocks(plan.moves) for plan in served.plans), strict=True)))


def equal_logits(a: Served, b: Served, atol: float) -> bool:
    """Whether every token of every answer was drawn from equal logits."""
    assert a.logits.keys() == b.logits.keys()
    return all(torch.allclose(row, b.logits[key], atol=atol, rtol=0) for key, row in a.logits.items())


def swaps_without_a_trace(swapping: Engine, roomy: Engine, atol: float = 1e-4) -> None:
    there, plain = serve(swapping, growing()), serve(roomy, growing())
    out, back, *_ = moved(there)
    assert out >= back > 8, "nothing was swapped: the case is not what it claims"
    assert any(plan.preempted for plan in there.plans)
    assert equal_logits(there, plain, atol)


def fetches_without_a_trace(offloading: Engine, roomy: Engine, atol: float = 1e-4) -> None:
    there, plain = serve(offloading, returning(), one_by_one=True), serve(roomy, returning(), one_by_one=True)
    *_, out, fetched = moved(there)
    assert out > 8, "nothing was evicted: the case is not what it claims"
    assert fetched > 8
    assert equal_logits(there, plain, atol)
