"""The end of a tile whose inputs are cut among several programs: their sums are added in one launch, always in the same order.

Every program leaves its sum in memory and counts itself; the last one to arrive adds all sums from the first split to the last, whoever
was late, so that results do not vary from run to run, and sets the counter back to zero. A second launch would cost as much as a small
layer takes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

COUNTERS = 1 << 15
"""Tiles that a launch may have at most."""

_counters: dict[torch.device, torch.Tensor] = {}


def workspace(splits: int, tiles: int, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for the sums of `splits` programs for each of so many tiles of `size` numbers, and the counters.

    Counters are zero before and after a launch; all launches of a device share them, so they must not overlap: one stream. Call it
    once before a graph is captured, which the warm-up does.
    """
    if device not in _counters:
        _counters[device] = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    if splits == 1:
        return _counters[device], _counters[device]  # neither is touched
    if tiles > COUNTERS:
        raise ValueError(f"{tiles} tiles cut among programs, at most {COUNTERS}")
    return torch.empty(splits * tiles * size, dtype=torch.float32, device=device), _counters[device]


@triton.jit
def _write(total, rn, rm, n, m, out, stride, bias, row_scales, BIAS: tl.constexpr, SCALES: tl.constexpr):
    inside = rn < n
    if SCALES:
        total *= tl.load(row_scales + rn, mask=inside, other=0.0)[:, None]
    if BIAS:
        total += tl.load(bias + rn, mask=inside, other=0.0).to(tl.float32)[:, None]
    at = out + rm[None, :].to(tl.int64) * stride + rn[:, None]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside[:, None] & (rm < m)[None, :])


@triton.jit
def finish(
    acc, rn, rm, n, m, out, stride, bias, row_scales, sums, counters, tile, split,
    SPLITS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BIAS: tl.constexpr, SCALES: tl.constexpr,
):  # fmt: skip
    """Stores a tile `(BN, BM)` of outputs `rn` and tokens `rm` to `out[rm, rn]`, times `row_scales[rn]`, plus `bias[rn]`.

    `tile` and `split` say which sum this program holds, of SPLITS.
    """
    if SPLITS == 1:
        _write(acc, rn, rm, n, m, out, stride, bias, row_scales, BIAS, SCALES)
    else:
        at = sums + tile.to(tl.int64) * (SPLITS * BN * BM) + tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
        tl.store(at + split * (BN * BM), acc)
        # All threads have stored before one of them counts (and publishes what they stored).
        tl.debug_barrier()
        arrived = tl.atomic_add(counters + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLITS - 1:
            total = tl.load(at, cache_modifier=".cg")
            for other in range(1, SPLITS):
                total += tl.load(at + other * (BN * BM), cache_modifier=".cg")
            tl.store(counters + tile, 0)
            _write(total, rn, rm, n, m, out, stride, bias, row_scales, BIAS, SCALES)
