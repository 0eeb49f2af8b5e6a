"""Products of many tokens on chips that copy tiles by themselves (sm_90: TMA): one program a multiprocessor, tile after tile.

Copies of the next tile begin while the last one is still being multiplied and stored, across the borders of tiles.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from gpu_backend.kernels import shapes
from gpu_backend.kernels.compiled import Specialisation

BK = 64
BM = 128
"""Tokens of a tile."""

GROUP = 8
"""Tiles of tokens that are walked together, so that their rows of weights are still in the L2 cache."""


@triton.jit
def _tma_kernel(
    x, weight, out, bias, m, n, inputs,
    BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """x, weight, out: descriptors of `(m, inputs)`, `(n, inputs)` and `(m, n)`; what a tile reads outside is zero."""
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    together = GROUP * tiles_n
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        first = tile // together * GROUP
        size = tl.minimum(tiles_m - first, GROUP)
        at_m = (first + tile % together % size) * BM
        at_n = tile % together // size * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, inputs, BK):
            acc = tl.dot(x.load([at_m, k]), weight.load([at_n, k]).T, acc)
        if BIAS:
            rn = at_n + tl.arange(0, BN)
            acc += tl.load(bias + rn, mask=rn < n, other=0.0).to(tl.float32)[None, :]
        out.store([at_m, at_n], acc.to(out.dtype))


def usable(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether the chip has the unit, and rows lie as it needs them: 16-byte steps, 16-bit numbers."""
    if not x.is_cuda or torch.cuda.get_device_capability(x.device) < (9, 0) or x.element_size() != 2:
        return False
    return all(t.stride(1) == 1 and t.stride(0) % 8 == 0 and t.data_ptr() % 16 == 0 for t in (x, weight, out))


def config(rows: int) -> dict[str, int]:
    """Tile and launch for so many output rows; the number of tokens does not enter."""
    wide = rows >= 16384
    return {"BN": 256 if wide else 128, "num_warps": 8, "num_stages": 3 if wide else 4}


def linear_tma(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """See `gpu_backend.kernels.linear.linear`, for what `usable` allows."""
    (m, inputs), n = x.shape, len(weight)
    launch = config(n)
    bn = launch["BN"]
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    _tma_kernel[(min(programs, triton.cdiv(m, BM) * triton.cdiv(n, bn)),)](
        TensorDescriptor(x, x.shape, x.stride(), [BM, BK]),
        TensorDescriptor(weight, weight.shape, weight.stride(), [bn, BK]),
        TensorDescriptor(out, out.shape, out.stride(), [BM, bn]),
        bias, m, n, inputs, BIAS=bias is not None, BM=BM, BK=BK, GROUP=GROUP, **launch,
    )  # fmt: skip


def _specialisation(
    name: str, tokens: int, rows: int, inputs: int, dtype: torch.dtype = torch.bfloat16
) -> Specialisation:
    """dtype: of the output."""
    launch = config(rows)
    bn = launch["BN"]

    def described(*shape: int, block: list[int], dtype: torch.dtype = torch.bfloat16) -> TensorDescriptor:
        there = torch.empty(shape, dtype=dtype, device="meta")
        return TensorDescriptor(there, there.shape, there.stride(), block)

    return Specialisation(
        name=f"{name}, {tokens} tokens",
        kernel=_tma_kernel,
        args=(
            described(tokens, inputs, block=[BM, BK]),
            described(rows, inputs, block=[bn, BK]),
            described(tokens, rows, block=[BM, bn], dtype=dtype),
            None, tokens, rows, inputs,
        ),
        constexprs={"BIAS": False, "BM": BM, "BN": bn, "BK": BK, "GROUP": GROUP},
        num_warps=launch["num_warps"],
        num_stages=launch["num_stages"],
        flops=2.0 * tokens * rows * inputs,
        bytes=2.0 * (rows * inputs + tokens * (rows + inputs)),
        expects={"wgmma", "tma"},
        capabilities=(90,),
    )  # fmt: skip


SPECIALISATIONS = [
    *(_specialisation(layer, 2048, *shapes.DENSE[layer]) for layer in ("Llama-3.1-8B o", "Llama-3.1-8B gate_up")),
    _specialisation("Qwen3-30B-A3B router", 2048, 128, 2048, torch.float32),
]
