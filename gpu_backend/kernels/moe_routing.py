"""Which experts compute which tokens: choice, and the order in which a grouped product takes them. Nothing waits for the host.

A (token, choice) pair is a slot, `token * top_k + choice`. Slots are sorted by expert, stably, so the order is always the same. How many
tiles that makes is known on the device only: launches have as many programs as there can be at most, and those beyond the last
tile end at once.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation


@triton.jit
def _route_kernel(logits, experts, weights, num_experts, top_k, WIDTH: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    inside = at < num_experts
    row = tl.load(logits + token * num_experts + at, mask=inside, other=float("-inf"))
    # Rows of padding may be anything, and have to choose experts that exist.
    row = tl.where(row == row, tl.minimum(tl.maximum(row, -1e38), 1e38), -1e38)
    # Renormalised, the softmax over all experts is the softmax over those chosen.
    left = tl.where(inside, tl.exp(row - tl.max(tl.where(inside, row, -1e38), 0)), -1.0)
    total = 0.0
    for choice in range(top_k):
        best = tl.argmax(left, 0)
        weight = tl.max(left, 0)
        tl.store(experts + token * top_k + choice, best)
        tl.store(weights + token * top_k + choice, weight)
        total += weight
        left = tl.where(at == best, -1.0, left)
    tl.debug_barrier()
    for choice in range(top_k):
        place = weights + token * top_k + choice
        tl.store(place, tl.load(place) / total)


@triton.jit
def _bounds_kernel(by_expert, starts, tiles, slots, num_experts, BM: tl.constexpr, WIDTH: tl.constexpr):
    """First slot and first tile of every expert and, behind the last one, their numbers: both `(num_experts + 1,)`."""
    expert = tl.arange(0, WIDTH)
    low, high = tl.zeros((WIDTH,), tl.int32), tl.zeros((WIDTH,), tl.int32) + slots
    past_low, past_high = low, high
    span = slots
    while span > 0:  # both bounds of every expert by halving: its first slot, and the first of the next one
        middle, past = (low + high) // 2, (past_low + past_high) // 2
        smaller = tl.load(by_expert + middle, mask=low < high, other=WIDTH) < expert
        low, high = tl.where(smaller, middle + 1, low), tl.where(smaller, high, middle)
        smaller = tl.load(by_expert + past, mask=past_low < past_high, other=WIDTH) <= expert
        past_low, past_high = tl.where(smaller, past + 1, past_low), tl.where(smaller, past_high, past)
        span = span // 2
    inside = expert < num_experts
    count = tl.where(inside, past_low - low, 0)
    of_expert = (count + BM - 1) // BM
    through = tl.cumsum(of_expert, 0)
    tl.store(starts + expert, low, mask=inside)
    tl.store(tiles + expert, through - of_expert, mask=inside)
    final = expert == num_experts - 1
    tl.store(starts + 1 + expert, past_low, mask=final)
    tl.store(tiles + 1 + expert, through, mask=final)


class Routing(NamedTuple):
    """weights: float32 `(T * top_k,)` by slot. order: int64 slots by expert. starts, tiles: see `_bounds_kernel`. most_tiles: that
    there can be."""

    weights: torch.Tensor
    order: torch.Tensor
    starts: torch.Tensor
    tiles: torch.Tensor
    most_tiles: int


def route(logits: torch.Tensor, top_k: int, tile: int) -> Routing:
    """The `top_k` best experts of each token, weighted by their softmax among each other, in tiles of up to `tile` slots.

    logits: float32 `(T, E)`, contiguous.
    """
    tokens, experts = logits.shape
    slots = tokens * top_k
    chosen = torch.empty(slots, dtype=torch.int32, device=logits.device)
    weights = torch.empty(slots, dtype=torch.float32, device=logits.device)
    width = triton.next_power_of_2(experts)
    _route_kernel[(tokens,)](logits, chosen, weights, experts, top_k, WIDTH=width, num_warps=1)
    by_expert, order = torch.sort(chosen, stable=True)
    starts, tiles = torch.empty(2, experts + 1, dtype=torch.int32, device=logits.device)
    _bounds_kernel[(1,)](by_expert, starts, tiles, slots, experts, BM=tile, WIDTH=width, num_warps=4)
    return Routing(weights, order, starts, tiles, min(slots, slots // tile + experts))


def route_reference(logits: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and experts `(T, top_k)`, best first."""
    best, experts = torch.softmax(logits, dim=-1).topk(top_k)
    return best / best.sum(-1, keepdim=True), experts


SPECIALISATIONS = [
    Specialisation(
        name="Qwen3-30B-A3B, 64 tokens, choice",
        kernel=_route_kernel,
        args=(torch.float32, torch.int32, torch.float32, 128, 8),
        constexprs={"WIDTH": 128},
        num_warps=1,
        bytes=4.0 * 64 * (128 + 2 * 8),
    ),
    Specialisation(
        name="Qwen3-30B-A3B, 64 tokens, bounds",
        kernel=_bounds_kernel,
        args=(torch.int32, torch.int32, torch.int32, 64 * 8, 128),
        constexprs={"BM": 16, "WIDTH": 128},
        bytes=4.0 * (64 * 8 + 2 * 129),
    ),
]
