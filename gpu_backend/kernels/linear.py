"""Dense layers: `tokens @ weights.T + bias`, for those who do not want cuBLAS (`torch.nn.functional.linear`, the reference).

Regimes by the number of tokens are those of `quantized_linear`, with one token computed as up to 16. Up to 64 tokens the
tile of weights is the left operand of the matrix unit and the inputs are cut among programs; beyond, tiles are 128 tokens wide, walked
by `linear_tma` where the chip copies tiles by itself. Within a regime tiles and splits follow from the layer's shape alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from gpu_backend.kernels import linear_tma, shapes
from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.split_k import finish, workspace
from scenarios.errors import InputError

REGIMES = {"split_16": 16, "split_32": 32, "split_64": 64}
"""Most tokens of each regime but the last, `gemm`."""

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def regime(tokens: int) -> str:
    """How so many tokens are computed."""
    return next((name for name, most in REGIMES.items() if tokens <= most), "gemm")


@triton.jit
def _linear_kernel(
    x, weight, bias, out, sums, counters, m, n, inputs, x_stride, weight_stride, out_stride, split_steps,
    BIAS: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rn = tile_n * BN + tl.arange(0, BN)
    rm = tile_m * BM + tl.arange(0, BM)
    rk = tl.arange(0, BK)
    weight_at = weight + tl.minimum(rn, n - 1)[:, None].to(tl.int64) * weight_stride + rk[None, :]
    x_at = x + rm[None, :].to(tl.int64) * x_stride + rk[:, None]
    # Absent tokens are not read: of a tile for 16 they may be 15.
    present = (rm < m)[None, :]
    acc = tl.zeros((BN, BM), tl.float32)
    last = tl.minimum((split + 1) * split_steps * BK, inputs)
    for k in range(split * split_steps * BK, last, BK):
        if EVEN:
            weights = tl.load(weight_at + k)
            tokens = tl.load(x_at + k, mask=present, other=0.0)
        else:
            inside = k + rk < inputs
            weights = tl.load(weight_at + k, mask=inside[None, :], other=0.0)
            tokens = tl.load(x_at + k, mask=present & inside[:, None], other=0.0)
        acc = tl.dot(weights, tokens, acc, input_precision="ieee")
    tile = tile_n * tl.num_programs(0) + tile_m
    finish(
        acc, rn, rm, n, m, out, out_stride, bias, bias, sums, counters, tile, split, SPLITS, BN, BM, BIAS, False
    )  # fmt: skip


class Tiles(NamedTuple):
    """How a product is cut, see `quantized_tiles.Tiles`. step: inputs of a step of the loop."""

    tokens: int
    outputs: int
    step: int
    splits: int
    warps: int
    stages: int


def tiles(how: str, rows: int, inputs: int, dtype: torch.dtype) -> Tiles:
    """The cut for a layer's shape and a regime; float32 (exact, for checks) has small tiles."""
    if how == "gemm":
        return Tiles(32, 32, 32, 1, 4, 2) if dtype == torch.float32 else Tiles(128, 128, 64, 1, 8, 3)
    tokens, outputs = REGIMES[how], 64
    step = 64 if tokens == 64 else 128
    if dtype == torch.float32:
        tokens, step = min(tokens, 32), 64
    splits = max(1, min(round(264 / triton.cdiv(rows, outputs)), triton.cdiv(inputs, step) // 4))
    return Tiles(tokens, outputs, step, splits, 4, 2 if dtype == torch.float32 else 4)


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """`x (T, in) @ weight (out, in).T + bias (out,)` with float32 sums, rows contiguous; bfloat16, float16 or float32.

    Raises:
        InputError: shapes or precisions that do not fit together.
    """
    (m, inputs), n = x.shape, len(weight)
    if x.dtype not in DTYPES or weight.dtype != x.dtype or weight.shape[1] != inputs:
        raise InputError(
            f"linear: found {x.dtype} of shape {tuple(x.shape)} and weights {weight.dtype} of shape {tuple(weight.shape)}; "
            "need (tokens, in) and (out, in) in one of bfloat16, float16, float32"
        )
    x, weight = (t if t.stride(1) == 1 else t.contiguous() for t in (x, weight))
    if out is None:
        out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if m == 0:
        return out
    how = regime(m)
    if how == "gemm" and linear_tma.usable(x, weight, out):
        linear_tma.linear_tma(x, weight, bias, out)
        return out
    cut = tiles(how, n, inputs, x.dtype)
    grid = (triton.cdiv(m, cut.tokens), triton.cdiv(n, cut.outputs), cut.splits)
    sums, counters = workspace(cut.splits, grid[0] * grid[1], cut.tokens * cut.outputs, x.device)
    _linear_kernel[grid](
        x, weight, bias, out, sums, counters, m, n, inputs, x.stride(0), weight.stride(0), out.stride(0),
        _split_steps(inputs, cut), **_constexprs(cut, inputs, bias is not None), num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out


def linear_reference(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The same; products and sums in float32, in float64 for float64 inputs."""
    compute = torch.promote_types(x.dtype, torch.float32)
    result = x.to(compute) @ weight.to(compute).T
    if bias is not None:
        result = result + bias.to(compute)
    result = result.to(x.dtype)
    return result if out is None else out.copy_(result)


def _split_steps(inputs: int, cut: Tiles) -> int:
    return triton.cdiv(triton.cdiv(inputs, cut.step), cut.splits)


def _constexprs(cut: Tiles, inputs: int, bias: bool) -> dict[str, int]:
    even = inputs % cut.step == 0
    return {"BIAS": bias, "SPLITS": cut.splits, "BM": cut.tokens, "BN": cut.outputs, "BK": cut.step, "EVEN": even}


def _specialisation(layer: str, tokens: int) -> Specialisation:
    rows, inputs = shapes.DENSE[layer]
    how = regime(tokens)
    cut = tiles(how, rows, inputs, torch.bfloat16)
    bf16, i32 = torch.bfloat16, torch.int32
    args = (
        bf16, bf16, None, bf16, i32 if cut.splits == 1 else torch.float32, i32, tokens, rows, inputs, inputs, inputs, rows,
        _split_steps(inputs, cut),
    )  # fmt: skip
    return Specialisation(
        name=f"{layer}, {tokens} tokens ({how})",
        kernel=_linear_kernel,
        args=args,
        constexprs=_constexprs(cut, inputs, False),
        num_warps=cut.warps,
        num_stages=cut.stages,
        flops=2.0 * tokens * rows * inputs,
        bytes=2.0 * (rows * inputs + tokens * (rows + inputs)),
        expects={"wgmma", "cp.async"},
    )


SPECIALISATIONS = [
    *(_specialisation("Llama-3.1-8B o", tokens) for tokens in (1, 16, 32, 64, 512)),
    _specialisation("Llama-3.1-8B gate_up", 16),
]
