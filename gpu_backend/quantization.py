"""Weights in 8 or 4 bits with the scales that make numbers of them again, in the layout that the kernels read.

int8: one scale a row, `w = q * scale`, q in -127..127. int4: one scale for each group of inputs of a row, `w = (n - zero) * scale`, n in
0..15. Symmetric groups have zero = 8 and scale = absmax / 7.5: all sixteen steps are used, and the one value that is cut off (7.5 to 7)
is half a step away, as any other may be. Scales of groups are float16, rounded up, and q is found with the rounded scale: whatever
the weights, |w - dequantised| <= scale / 2.

Layout (`packed`): 32-bit words, V = 32 / bits values each. A row is cut into blocks of 32 words, 128 bytes: 128 inputs in int8, 256 in
int4. Bits `bits * t + 16 * h` of word j (t in 0..V/2-1, h in 0..1) of block b hold input `32 * V * b + 64 * t + 2 * j + h`, so that one
`(word >> bits * t) & mask` yields the neighbours 2j and 2j + 1 in the two halves of a register, where the operand of a matrix product
wants them: widening 4-bit weights needs no shuffle. The last block is filled up, to be multiplied with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from scenarios.errors import InputError

WORDS = 32
"""Words of a block of a row."""

SLICE = 64
"""Inputs of a block that one shift yields."""

GROUPS = (128, 64)
"""Group sizes of int4: multiples of a slice, so that a slice has one scale."""

INT8_MOST, FP8_MOST = 127.0, 448.0
"""Largest numbers used of int8, and of float8_e4m3fn."""

_TILE = 1 << 23  # weights that are packed or unpacked at a time: 32 MB a temporary


@dataclass(frozen=True)
class QuantizedWeight:
    """An `(out, in)` matrix. See the head of this file for `packed`, int32 `(out, blocks * 32)`.

    Args:
        scales: int8: float32 `(out,)`. int4: float16 `(in / group_size, out)`, the outputs of a group side by side.
        zeros: int4 with zero points: uint8, shape of the scales; else None.
        group_size: inputs that share a scale; in int8 all of them.
        shape: `(out, in)`.
    """

    bits: int
    packed: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None
    group_size: int
    shape: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes of memory, scales and filling included."""
        parts = (self.packed, self.scales, self.zeros)
        return sum(part.numel() * part.element_size() for part in parts if part is not None)


def block_inputs(bits: int) -> int:
    """Inputs of a block of a row."""
    return WORDS * 32 // bits


def weight_bytes(rows: int, inputs: int, bits: int, zeros: bool = False, group_size: int = 128) -> int:
    """Bytes of a quantised matrix that has not been made yet."""
    packed = rows * -(-inputs // block_inputs(bits)) * WORDS * 4
    return packed + (4 * rows if bits == 8 else rows * (inputs // group_size) * (3 if zeros else 2))


def quantize(
    weight: torch.Tensor, bits: int, group_size: int = 128, symmetric: bool = True, *, name: str = "weight"
) -> QuantizedWeight:
    """Rounds `(out, in)` weights to 8 or 4 bits, on the device where they are; temporaries take about 150 MB whatever the size.

    Inputs that groups of `group_size` do not divide get groups of 64 where that divides them (SmolLM2's 576 does).

    Args:
        symmetric: False gives int4 zero points: the sixteen steps of a group run from its least weight to its greatest (0 among them).
        name: of the layer, for errors.

    Raises:
        InputError: bits, groups or inputs that the kernels do not have, or weights that are not finite.
    """
    if weight.ndim != 2 or not weight.is_floating_point():
        raise InputError(f"{name}: found {weight.dtype} of shape {tuple(weight.shape)}, need floats of shape (out, in)")
    rows, inputs = weight.shape
    if bits == 8:
        if not symmetric:
            raise InputError(f"{name}: zero points are for 4 bits; in 8 bits weights are symmetric")
        if inputs % 16:
            raise InputError(
                f"{name}: {inputs} inputs; int8 needs a multiple of 16, its rows are read 16 bytes at a time"
            )
        group = inputs
        scales = torch.empty(rows, dtype=torch.float32, device=weight.device)
        zeros = None
    elif bits == 4:
        group = _group(inputs, group_size, name)
        scales = torch.empty(inputs // group, rows, dtype=torch.float16, device=weight.device)
        zeros = None if symmetric else torch.empty_like(scales, dtype=torch.uint8)
    else:
        raise InputError(f"{name}: found {bits} bits, allowed: 8, 4")
    blocks = -(-inputs // block_inputs(bits))
    packed = torch.empty(rows, blocks * WORDS, dtype=torch.int32, device=weight.device)
    for part in _row_tiles(rows, inputs):
        w = weight[part].float()
        if bits == 8:
            values, scales[part] = _eight(w)
        else:
            values, scale, zero = _four(w.view(len(w), -1, group), symmetric)
            scales[:, part] = scale.T
            if zeros is not None:
                zeros[:, part] = zero.T
        packed[part] = _pack(values.view(len(w), inputs), bits)
    if not bool(torch.isfinite(scales).all()):
        raise InputError(f"{name}: weights that are not finite, or beyond float16 scales (about 490,000 in int4)")
    return QuantizedWeight(bits, packed, scales, zeros, group, (rows, inputs))


def dequantize(weight: QuantizedWeight, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The `(out, in)` matrix that the packed one stands for; products in float32, rounded once to `dtype`."""
    rows, inputs = weight.shape
    out = torch.empty(rows, inputs, dtype=dtype, device=weight.packed.device)
    for part in _row_tiles(rows, inputs):
        values = unpack(weight.packed[part], weight.bits)[:, :inputs].float()
        if weight.bits == 8:
            out[part] = (values * weight.scales[part, None]).to(dtype)
        else:
            zero = 8.0 if weight.zeros is None else weight.zeros[:, part].T.unsqueeze(-1).float()
            grouped = values.view(len(values), -1, weight.group_size) - zero
            out[part] = (grouped * weight.scales[:, part].T.unsqueeze(-1).float()).view(len(values), -1).to(dtype)
    return out


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Integers of packed rows `(R, blocks * 32)`: -128..127 in 8 bits, 0..15 in 4, `(R, blocks * inputs of a block)`."""
    words = packed.view(len(packed), -1, 1, WORDS, 1)
    fields = (words >> _shifts(bits, packed.device)) & ((1 << bits) - 1)
    if bits == 8:
        fields = (fields ^ 128) - 128
    return fields.view(len(packed), -1)


def _group(inputs: int, group_size: int, name: str) -> int:
    if group_size not in GROUPS:
        raise InputError(f"{name}: group size {group_size}, allowed: {', '.join(map(str, GROUPS))}")
    for size in GROUPS:
        if size <= group_size and inputs % size == 0:
            return size
    raise InputError(f"{name}: {inputs} inputs; int4 needs a multiple of {GROUPS[-1]}, the smallest group")


def _row_tiles(rows: int, inputs: int) -> Iterator[slice]:
    step = max(1, _TILE // inputs)
    for first in range(0, rows, step):
        yield slice(first, min(rows, first + step))


def absmax_scaled(x: torch.Tensor, most: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The values in units of the scale of their row (last dimension), in -most..most, and the scales without that dimension: absmax
    over `most`, 1 for a row of zeros."""
    scale = x.abs().amax(-1) / most
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (x / scale.unsqueeze(-1)).clamp(-most, most), scale


def _eight(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    units, scale = absmax_scaled(w, INT8_MOST)
    return units.round().to(torch.int32), scale


def _four(w: torch.Tensor, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values 0..15 of `(R, groups, group)`, scales and zero points `(R, groups)`."""
    if symmetric:
        scale = _float16_above(w.abs().amax(-1) / 7.5)
        zero = torch.full_like(scale, 8.0, dtype=torch.float32)
    else:
        low, high = w.amin(-1).clamp(max=0.0), w.amax(-1).clamp(min=0.0)
        scale = _float16_above((high - low) / 15.0)
        zero = (-low / scale.float()).round()
    values = ((w / scale.float()[..., None]).round() + zero[..., None]).clamp(0, 15)
    return values.to(torch.int32), scale, zero


def _float16_above(scale: torch.Tensor) -> torch.Tensor:
    """The least float16 that is not below a number >= 0; at least 2**-24, the least above 0."""
    near = scale.clamp(min=2.0**-24).half()
    below = near.float() < scale
    return torch.where(below, (near.view(torch.int16) + 1).view(torch.float16), near)


def _shifts(bits: int, device: torch.device) -> torch.Tensor:
    """`(V/2, 1, 2)`: first bit of each field, by slice and by half."""
    slices = torch.arange(16 // bits, dtype=torch.int32, device=device) * bits
    halves = torch.arange(2, dtype=torch.int32, device=device) * 16
    return slices[:, None, None] + halves


def _pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    rows, inputs = values.shape
    filling = -inputs % block_inputs(bits)
    values = torch.nn.functional.pad(values & ((1 << bits) - 1), (0, filling))
    fields = values.view(rows, -1, 16 // bits, WORDS, 2) << _shifts(bits, values.device)
    # The fields do not overlap: their sum is their union. (int32 wraps at the top bit, as it should.)
    return fields.sum((2, 4), dtype=torch.int32).view(rows, -1)
