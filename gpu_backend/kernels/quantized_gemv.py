"""One token times 8- or 4-bit weights: words stream through registers, no matrix unit, no shared memory in the loop.

A program takes 4 rows; its threads cut the inputs among themselves, 16 bytes each at a time, and programs cut them further where there
are too few rows. A field of bits is moved to the top of a float's fraction under the exponent of 1: `1 + field / 2**bits`. That takes a
shift and a mask where a conversion would go through the slow unit; the ones are taken off with the sum of the inputs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.split_k import finish, workspace
from gpu_backend.quantization import SLICE, WORDS, QuantizedWeight, block_inputs, weight_bytes

ROWS = 4
MASKS = {8: 0x007F8000, 4: 0x00780000}
"""Top bits of a float's fraction. The kernel is handed its mask: with a literal, masking and setting the exponent, which the processor
does in one instruction, would be two, as an instruction holds one literal."""

PROGRAMS = 2112
"""Programs that are aimed at: 16 for each of an H200's 132 multiprocessors."""


@triton.jit
def _inputs(x, at, valid, EVEN: tl.constexpr):
    """Neighbours x[2 * at] and x[2 * at + 1] as float32."""
    if x.dtype.element_ty == tl.float32:
        if EVEN:
            low, high = tl.load(x + 2 * at), tl.load(x + 2 * at + 1)
        else:
            low, high = tl.load(x + 2 * at, mask=valid, other=0.0), tl.load(x + 2 * at + 1, mask=valid, other=0.0)
    else:
        # Both in one 32-bit word: four neighbouring words make a 16-byte load.
        words = x.to(tl.pointer_type(tl.int32), bitcast=True)
        pair = tl.load(words + at) if EVEN else tl.load(words + at, mask=valid, other=0)
        if x.dtype.element_ty == tl.bfloat16:
            low = (pair << 16).to(tl.float32, bitcast=True)
            high = (pair & -65536).to(tl.float32, bitcast=True)
        else:
            low = (pair & 0xFFFF).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
            high = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return low, high


@triton.jit
def _one_plus(words, mask, FIRST: tl.constexpr, BITS: tl.constexpr):
    """`1 + u / 2**BITS` of the field that begins at bit FIRST; in 8 bits u = q + 128. mask: of the top bits of a fraction."""
    SHIFT: tl.constexpr = 23 - BITS - FIRST
    moved = words << SHIFT if SHIFT >= 0 else words >> -SHIFT
    if BITS == 8:
        return ((moved & mask) ^ 0x3FC00000).to(tl.float32, bitcast=True)
    return ((moved & mask) | 0x3F800000).to(tl.float32, bitcast=True)


@triton.jit
def _gemv_kernel(
    x, packed, scales, zeros, bias, out, sums, counters, n, inputs, blocks, split_steps, mask,
    BITS: tl.constexpr, GROUP: tl.constexpr, ZEROS: tl.constexpr, BIAS: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr, BLOCKS: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    SLICES: tl.constexpr = 16 // BITS
    WORDS: tl.constexpr = 32 * BLOCKS
    tile, split = tl.program_id(0), tl.program_id(1)
    rn = tile * ROWS + tl.arange(0, ROWS)
    row = tl.minimum(rn, n - 1)
    # Words are laid out in one row, so that both versions of the compiler spread the inputs over the threads as they spread the words.
    rw = tl.arange(0, WORDS)
    acc = tl.zeros((ROWS, WORDS), tl.float32)
    starts = packed + row.to(tl.int64)[:, None] * (blocks * 32)
    last = tl.minimum((split + 1) * split_steps * WORDS, blocks * 32)
    for first in range(split * split_steps * WORDS, last, WORDS):
        word = first + rw
        at = starts + word[None, :]
        words = tl.load(at) if EVEN else tl.load(at, mask=(word < blocks * 32)[None, :], other=0)
        part = tl.zeros((ROWS, WORDS), tl.float32)
        total = tl.zeros((WORDS,), tl.float32)
        for t in tl.static_range(SLICES):
            pair = word // 32 * (32 * SLICES) + 32 * t + word % 32
            low, high = _inputs(x, pair, 2 * pair < inputs, EVEN)
            part += _one_plus(words, mask, BITS * t, BITS) * low[None, :]
            part += _one_plus(words, mask, BITS * t + 16, BITS) * high[None, :]
            total += low + high
            if BITS == 4 and 64 * (t + 1) % GROUP == 0:
                # What fills the last block has no scale; it meets zeros, under the scale of the last group.
                group = (first // 32 + tl.arange(0, BLOCKS)) * (64 * SLICES // GROUP) + 64 * t // GROUP
                place = tl.minimum(group, inputs // GROUP - 1)[None, :] * n + row[:, None]
                scale = tl.load(scales + place).to(tl.float32)[:, :, None]
                values = part * 16.0 - total[None, :] * 24.0
                values = values.reshape(ROWS, BLOCKS, 32) * scale
                if ZEROS:
                    zero = (tl.load(zeros + place).to(tl.float32) - 8.0)[:, :, None]
                    values -= tl.broadcast_to(total[None, :], (ROWS, WORDS)).reshape(ROWS, BLOCKS, 32) * (zero * scale)
                acc += values.reshape(ROWS, WORDS)
                part = tl.zeros((ROWS, WORDS), tl.float32)
                total = tl.zeros((WORDS,), tl.float32)
        if BITS == 8:
            acc += part * 256.0 - total[None, :] * 384.0
    finish(
        tl.sum(acc, 1)[:, None], rn, tl.arange(0, 1), n, 1, out, 0, bias, scales, sums, counters, tile, split,
        SPLITS, ROWS, 1, BIAS, BITS == 8,
    )  # fmt: skip


def config(rows: int, blocks: int) -> tuple[int, int]:
    """`(blocks of a step of the loop, splits)` for so many output rows of so many blocks; nothing else matters."""
    width = 8 if blocks % 8 == 0 else 4
    steps = triton.cdiv(blocks, width)
    return width, max(1, min(PROGRAMS // triton.cdiv(rows, ROWS), steps // 2))


def constexprs(rows: int, blocks: int, inputs: int, bits: int, group: int, zeros: bool, bias: bool) -> dict[str, Any]:
    """What a launch of the kernel is compiled for."""
    width, splits = config(rows, blocks)
    return {
        "BITS": bits,
        "GROUP": group if bits == 4 else SLICE,
        "ZEROS": zeros,
        "BIAS": bias,
        "SPLITS": splits,
        "ROWS": ROWS,
        "BLOCKS": width,
        "EVEN": blocks % width == 0 and inputs == blocks * block_inputs(bits),
    }


def gemv(x: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    """`(1, in)` -> `(1, out)`, see `quantized_linear`."""
    (rows, inputs), bits, zeros = weight.shape, weight.bits, weight.zeros
    blocks = weight.packed.shape[1] // WORDS
    width, splits = config(rows, blocks)
    tiles = triton.cdiv(rows, ROWS)
    sums, counters = workspace(splits, tiles, ROWS, x.device)
    _gemv_kernel[(tiles, splits)](
        x, weight.packed, weight.scales, zeros, bias, out, sums, counters, rows, inputs, blocks, _split_steps(blocks, width, splits), MASKS[bits],
        **constexprs(rows, blocks, inputs, bits, weight.group_size, zeros is not None, bias is not None), num_warps=width // 4,
    )  # fmt: skip


def _split_steps(blocks: int, width: int, splits: int) -> int:
    return triton.cdiv(triton.cdiv(blocks, width), splits)


def specialisation(name: str, rows: int, inputs: int, bits: int, zeros: bool) -> Specialisation:
    """The launch of a bfloat16 layer in groups of 128."""
    blocks = triton.cdiv(inputs, block_inputs(bits))
    width, splits = config(rows, blocks)
    bf16, i32 = torch.bfloat16, torch.int32
    args = (
        bf16, i32, torch.float32 if bits == 8 else torch.float16, torch.uint8 if zeros else None, None, bf16,
        i32 if splits == 1 else torch.float32, i32, rows, inputs, blocks, _split_steps(blocks, width, splits), MASKS[bits],
    )  # fmt: skip
    return Specialisation(
        name=name, kernel=_gemv_kernel, args=args, constexprs=constexprs(rows, blocks, inputs, bits, 128, zeros, False),
        num_warps=width // 4, flops=2.0 * rows * inputs, bytes=weight_bytes(rows, inputs, bits, zeros) + 2.0 * (rows + inputs),
        expects={"ld.128"},
    )  # fmt: skip
