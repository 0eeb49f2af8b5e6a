"""Tokens times 8- or 4-bit weights in tiles of a matrix product.

The product is computed as `weights @ tokens.T`: the tile of weights is the left operand, which `wgmma` takes from registers, so that
weights go from shared memory (as they are packed) through registers (widened) straight into the matrix unit. Its other side, the tokens,
may be as narrow as 8.

Widening makes two 16-bit floats of a word at once: bits below the exponent of 128 (bfloat16) or 1024 (float16) are that number plus
their value, and a subtraction leaves the integer, exactly. Zero points go in as integers, before it. 8 bits do not fit into a
bfloat16's fraction of 7: there the low seven bits give 128 + low, and the sign bit, which falls on the exponent's lowest, 128 or 256,
to be subtracted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.split_k import finish, workspace
from gpu_backend.quantization import SLICE, WORDS, QuantizedWeight, block_inputs, weight_bytes

# Pairs of 16-bit floats as words, and the number that is taken off them again.
EXPONENT_BF16 = tl.constexpr(0x43004300)
"""128."""
BASE_BF16, LEAST_BF16 = tl.constexpr(0x43404340), tl.constexpr(192.0)
"""To which n - zero is added as an integer: above 128 and below 256 steps are of one."""
BASE_FP16, LEAST_FP16 = tl.constexpr(0x64106410), tl.constexpr(1040.0)
BYTES_FP16, LEAST_BYTE_FP16 = tl.constexpr(0x64806480), tl.constexpr(1152.0)
"""1024 with the byte's sign bit turned over: 1152 + q."""


@triton.jit
def _halves(words, dtype: tl.constexpr):
    """`(R, W)` words, each of two 16-bit floats, as `(R, 2 * W)` floats. Moves nothing: the pairs stay where they are."""
    low = words.to(tl.int16).to(dtype, bitcast=True)
    high = (words >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.join(low, high).reshape(words.shape[0], 2 * words.shape[1])


@triton.jit
def _widen(words, zero, FIRST: tl.constexpr, BITS: tl.constexpr, dtype: tl.constexpr):
    """The fields that begin at bits FIRST and FIRST + 16 of `(R, W)` words as `(R, 2 * W)` numbers q, or n - zero."""
    moved = words >> FIRST
    if dtype == tl.float32:
        MASK: tl.constexpr = (1 << BITS) - 1
        fields = tl.join(moved & MASK, (words >> (FIRST + 16)) & MASK).reshape(words.shape[0], 2 * words.shape[1])
        if BITS == 8:
            return ((fields ^ 128) - 128).to(tl.float32)
        return (fields - zero).to(tl.float32)
    elif BITS == 4:
        if dtype == tl.bfloat16:
            return (_halves((moved & 0x000F000F) + (BASE_BF16 - zero * 0x00010001), dtype) - LEAST_BF16).to(dtype)
        return (_halves((moved & 0x000F000F) + (BASE_FP16 - zero * 0x00010001), dtype) - LEAST_FP16).to(dtype)
    elif dtype == tl.bfloat16:
        low = _halves((moved & 0x007F007F) | EXPONENT_BF16, dtype)
        return (low - _halves((moved & 0x00800080) | EXPONENT_BF16, dtype)).to(dtype)
    else:
        return (_halves((moved & 0x00FF00FF) ^ BYTES_FP16, dtype) - LEAST_BYTE_FP16).to(dtype)


@triton.jit
def _tile_kernel(
    x, packed, scales, zeros, bias, out, sums, counters, m, n, inputs, blocks, x_stride, out_stride, split_steps,
    BITS: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, BIAS: tl.constexpr, SPLITS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, WORDS: tl.constexpr, SCALED: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """SCALED: weights are scaled before they are multiplied (and rounded), else the sums of a group after it.

    A step of the loop takes WORDS words of a row: 32 of them are a block, 16 the first or second half of every slice of one.
    """
    SLICES: tl.constexpr = 16 // BITS
    PARTS: tl.constexpr = 32 // WORDS
    WIDTH: tl.constexpr = 2 * WORDS
    dtype: tl.constexpr = x.dtype.element_ty
    tile_m, tile_n, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rn = tile_n * BN + tl.arange(0, BN)
    rm = tile_m * BM + tl.arange(0, BM)
    row = tl.minimum(rn, n - 1)
    rk = tl.arange(0, WIDTH)
    words_at = packed + row[:, None].to(tl.int64) * (blocks * 32) + tl.arange(0, WORDS)[None, :]
    x_at = x + rm[None, :].to(tl.int64) * x_stride + rk[:, None]
    present = (rm < m)[None, :]
    acc = tl.zeros((BN, BM), tl.float32)
    last = tl.minimum((split + 1) * split_steps, blocks * PARTS)
    for step in range(split * split_steps, last):
        words = tl.load(words_at + step * WORDS)
        block = step // PARTS
        first = block * (64 * SLICES) + (step % PARTS) * WIDTH
        part = acc if BITS == 8 else tl.zeros((BN, BM), tl.float32)
        for t in tl.static_range(SLICES):
            k = first + 64 * t
            if EVEN:
                tokens = tl.load(x_at + k, mask=present, other=0.0)
            else:
                tokens = tl.load(x_at + k, mask=present & (k + rk < inputs)[:, None], other=0.0)
            if BITS == 8:
                acc = tl.dot(_widen(words, 0, 8 * t, 8, dtype), tokens, acc, input_precision="ieee")
            else:
                if 64 * t % GROUP == 0:
                    # What fills the last block has no scale; it meets zeros, under the scale of the last group.
                    group = block * (64 * SLICES // GROUP) + 64 * t // GROUP
                    place = tl.minimum(group, inputs // GROUP - 1) * n + row
                    scale = tl.load(scales + place)
                    zero = tl.load(zeros + place).to(tl.int32)[:, None] if ZEROS else 8
                weights = _widen(words, zero, 4 * t, 4, dtype)
                if SCALED:
                    weights = (weights * scale.to(dtype)[:, None]).to(dtype)
                    acc = tl.dot(weights, tokens, acc, input_precision="ieee")
                else:
                    part = tl.dot(weights, tokens, part, input_precision="ieee")
                    if 64 * (t + 1) % GROUP == 0:
                        acc += part * scale.to(tl.float32)[:, None]
                        part = tl.zeros((BN, BM), tl.float32)
    tile = tile_n * tl.num_programs(0) + tile_m
    finish(
        acc, rn, rm, n, m, out, out_stride, bias, scales, sums, counters, tile, split, SPLITS, BN, BM, BIAS, BITS == 8
    )


class Tiles(NamedTuple):
    """How a product is cut. words: of a row that a step of the loop takes. scaled: see `_tile_kernel`. splits: programs that share
    the inputs of a tile."""

    tokens: int
    outputs: int
    words: int
    scaled: bool
    splits: int
    warps: int
    stages: int


def tiles(regime: str, rows: int, blocks: int, bits: int, dtype: torch.dtype) -> Tiles:
    """The cut for so many output rows of so many blocks of inputs. The number of tokens enters by its regime only."""
    wide = dtype == torch.float32  # exact products of float32 are there for checks: no matrix unit, small tiles
    if regime == "gemm":
        words = 32 if bits == 8 else 16
        return Tiles(32, 64, words, True, 1, 4, 2) if wide else Tiles(128, 128, words, bits == 4, 1, 8, 3)
    tokens = int(regime.removeprefix("split_"))
    outputs = 128 if rows >= 16384 or tokens == 64 else 64
    if wide:
        outputs, tokens = 64, min(tokens, 32)
    aimed = 264 * 64 // outputs
    splits = max(1, min(round(aimed / triton.cdiv(rows, outputs)), blocks // 2))
    return Tiles(tokens, outputs, 32, False, splits, outputs // 16 if tokens == 64 else 4, 2 if wide else 4)


def constexprs(cut: Tiles, blocks: int, inputs: int, bits: int, group: int, zeros: bool, bias: bool) -> dict[str, Any]:
    """What a launch of the kernel is compiled for."""
    return {
        "BITS": bits,
        "GROUP": group if bits == 4 else SLICE,
        "ZEROS": zeros,
        "BIAS": bias,
        "SPLITS": cut.splits,
        "BM": cut.tokens,
        "BN": cut.outputs,
        "WORDS": cut.words,
        "SCALED": cut.scaled,
        "EVEN": inputs == blocks * block_inputs(bits),
    }


def tiled(x: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None, out: torch.Tensor, regime: str) -> None:
    """`(T, in)` -> `(T, out)`, see `quantized_linear`."""
    (rows, inputs), bits, zeros = weight.shape, weight.bits, weight.zeros
    blocks = weight.packed.shape[1] // WORDS
    cut = tiles(regime, rows, blocks, bits, x.dtype)
    grid = (triton.cdiv(len(x), cut.tokens), triton.cdiv(rows, cut.outputs), cut.splits)
    sums, counters = workspace(cut.splits, grid[0] * grid[1], cut.tokens * cut.outputs, x.device)
    split_steps = triton.cdiv(blocks * (WORDS // cut.words), cut.splits)
    _tile_kernel[grid](
        x, weight.packed, weight.scales, zeros, bias, out, sums, counters, len(x), rows, inputs, blocks, x.stride(0), out.stride(0),
        split_steps, **constexprs(cut, blocks, inputs, bits, weight.group_size, zeros is not None, bias is not None),
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip


def specialisation(
    name: str, regime: str, tokens: int, rows: int, inputs: int, bits: int, zeros: bool
) -> Specialisation:
    """The launch of a bfloat16 layer in groups of 128."""
    blocks = triton.cdiv(inputs, block_inputs(bits))
    cut = tiles(regime, rows, blocks, bits, torch.bfloat16)
    bf16, i32 = torch.bfloat16, torch.int32
    args = (
        bf16, i32, torch.float32 if bits == 8 else torch.float16, torch.uint8 if zeros else None, None, bf16,
        i32 if cut.splits == 1 else torch.float32, i32, tokens, rows, inputs, blocks, inputs, rows,
        triton.cdiv(blocks * (WORDS // cut.words), cut.splits),
    )  # fmt: skip
    return Specialisation(
        name=name, kernel=_tile_kernel, args=args, constexprs=constexprs(cut, blocks, inputs, bits, 128, zeros, False),
        num_warps=cut.warps, num_stages=cut.stages, flops=2.0 * tokens * rows * inputs,
        bytes=weight_bytes(rows, inputs, bits, zeros) + 2.0 * tokens * (rows + inputs),
        expects={"cp.async", "wgmma"},
    )  # fmt: skip
