"""Quantised weights: what rounding may cost, where every value lies, and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_backend import quantization
from gpu_backend.quantization import QuantizedWeight, block_inputs, dequantize, quantize, unpack, weight_bytes
from scenarios.errors import InputError

KINDS = [(8, True), (4, True), (4, False)]


def steps(q: QuantizedWeight) -> torch.Tensor:
    """The scale of every weight."""
    if q.bits == 8:
        return q.scales[:, None].expand(q.shape)
    return q.scales.float().T.repeat_interleave(q.group_size, 1)


def drawn(rows: int, inputs: int, seed: int = 0) -> torch.Tensor:
    """Weights of magnitudes from 1e-6 to 100, some rows of one sign, some of zeros."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, inputs, generator=generator)
    w *= 10 ** (8 * torch.rand(rows, 1, generator=generator) - 6)
    w[rows // 3] = w[rows // 3].abs()
    w[rows // 2] = -w[rows // 2].abs()
    w[rows - 1] = 0.0
    return w


@pytest.mark.parametrize(("bits", "symmetric"), KINDS)
@given(rows=st.integers(1, 40), slices=st.integers(1, 20), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_no_weight_moves_by_more_than_half_a_step(
    bits: int, symmetric: bool, rows: int, slices: int, seed: int
) -> None:
    w = drawn(rows, 64 * slices, seed)
    q = quantize(w, bits, symmetric=symmetric)
    allowed = steps(q).double() * (0.5 + 1e-5)
    assert ((w.double() - dequantize(q).double()).abs() <= allowed).all()


@pytest.mark.parametrize(("bits", "symmetric"), KINDS)
def test_steps_are_as_fine_as_the_weights_allow(bits: int, symmetric: bool) -> None:
    w = torch.linspace(-3.0, 5.0, 128).repeat(3, 1)
    widest = {(8, True): 5 / 127, (4, True): 5 / 7.5, (4, False): 8 / 15}[bits, symmetric]
    q = quantize(w, bits, symmetric=symmetric)
    assert (steps(q) >= widest * (1 - 1e-6)).all()
    assert (steps(q) <= widest * (1 + 2**-10)).all()


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("inputs", [16, 80, 256, 576])
def test_packed_integers_come_back(bits: int, inputs: int) -> None:
    low, high = (-128, 128) if bits == 8 else (0, 16)
    values = torch.randint(low, high, (7, inputs), dtype=torch.int32)
    packed = quantization._pack(values, bits)
    assert packed.shape == (7, -(-inputs // block_inputs(bits)) * quantization.WORDS)
    assert (unpack(packed, bits)[:, :inputs] == values).all()
    assert (unpack(packed, bits)[:, inputs:] == 0).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_input_lies_at_the_bits_that_the_layout_names(bits: int) -> None:
    per_word = 32 // bits
    k = 3 * 64 + 2 * 5 + 1  # block 0 of int4 and 1 of int8; slice 3 or 1; word 5, upper half
    values = torch.zeros(1, 512, dtype=torch.int32)
    values[0, k] = 1
    block, t = (0, 3) if bits == 4 else (1, 1)
    packed = quantization._pack(values, bits)
    assert k == 32 * per_word * block + 64 * t + 2 * 5 + 1
    assert packed[0, 32 * block + 5] == 1 << (bits * t + 16)
    assert (packed != 0).sum() == 1


@pytest.mark.parametrize(("bits", "symmetric"), KINDS)
def test_tiles_of_rows_change_nothing(bits: int, symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    w = drawn(33, 256)
    whole = quantize(w, bits, symmetric=symmetric)
    monkeypatch.setattr(quantization, "_TILE", 10 * 256)
    cut = quantize(w, bits, symmetric=symmetric)
    assert torch.equal(whole.packed, cut.packed)
    assert torch.equal(whole.scales, cut.scales)
    assert torch.equal(dequantize(whole), dequantize(cut))


def test_groups_shrink_where_the_inputs_ask_for_it() -> None:
    assert quantize(torch.randn(4, 640), 4).group_size == 128
    assert quantize(torch.randn(4, 576), 4).group_size == 64
    assert quantize(torch.randn(4, 640), 4, group_size=64).group_size == 64


@pytest.mark.parametrize(("bits", "symmetric"), KINDS)
def test_memory_is_as_announced(bits: int, symmetric: bool) -> None:
    q = quantize(torch.randn(48, 1024).bfloat16(), bits, symmetric=symmetric)
    assert q.nbytes == weight_bytes(48, 1024, bits, not symmetric)
    assert q.nbytes < {8: 1.01, 4: 0.52, }[bits] * 48 * 1024 + (0 if symmetric else 48 * 8)  # fmt: skip


@pytest.mark.parametrize(
    ("weight", "arguments", "said"),
    [
        (torch.zeros(4, 100), (4,), r"layers\.0\.o: 100 inputs; int4 needs a multiple of 64"),
        (torch.zeros(4, 100), (8,), "100 inputs; int8 needs a multiple of 16"),
        (torch.zeros(4, 128), (3,), "found 3 bits, allowed: 8, 4"),
        (torch.zeros(4, 128), (4, 96), "group size 96, allowed: 128, 64"),
        (torch.zeros(4, 128), (8, 128, False), "zero points are for 4 bits"),
        (torch.full((4, 128), float("nan")), (8,), "not finite"),
        (torch.full((4, 128), float("inf")), (4,), "not finite"),
        (torch.zeros(4, 128, dtype=torch.int32), (8,), "need floats"),
        (torch.zeros(128), (8,), r"need floats of shape \(out, in\)"),
    ],
)
def test_what_the_kernels_cannot_read_is_refused(weight: torch.Tensor, arguments: tuple[int, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        quantize(weight, *arguments, name="layers.0.o")
