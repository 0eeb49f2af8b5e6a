"""Dense layers with 8- and 4-bit weights against float64, in every regime; what regimes promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_backend.kernels import quantized_tiles as tiles
from gpu_backend.kernels.quantized_gemv import config
from gpu_backend.kernels.quantized_linear import quantized_linear, quantized_linear_reference, regime
from gpu_backend.kernels.split_k import workspace
from gpu_backend.quantization import QuantizedWeight, quantize
from scenarios.errors import InputError
from tests.gpu_backend.kernels.conftest import Guards

KINDS = [(8, True), (4, True), (4, False)]


def layer(rows: int, inputs: int, bits: int, symmetric: bool, seed: int = 0) -> QuantizedWeight:
    generator = torch.Generator().manual_seed(seed)
    return quantize(torch.randn(rows, inputs, generator=generator) * inputs**-0.5, bits, symmetric=symmetric)


def tokens(count: int, inputs: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    # A mean apart from zero: what widening adds and takes off again does not cancel by itself.
    return (torch.randn(count, inputs, generator=torch.Generator().manual_seed(seed)) + 0.5).to(dtype)


def check(
    x: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None, out: torch.Tensor, tolerance: float
) -> None:
    exact = quantized_linear_reference(x.double(), weight, None if bias is None else bias.double())
    assert (out.double() - exact).abs().max() <= tolerance * exact.abs().max().clamp(min=1.0)


TOLERANCE = {torch.float32: 1e-5, torch.float16: 1.5e-3}


@pytest.mark.parametrize(("bits", "symmetric"), KINDS)
@pytest.mark.parametrize("count", [1, 2, 16, 17, 64, 65, 130])
def test_every_regime_computes_the_product(guards: Guards, bits: int, symmetric: bool, count: int) -> None:
    dtype = torch.float16 if count > 17 else torch.float32  # float32 has small tiles, many of them
    weight = layer(20, 320, bits, symmetric)
    x, bias = guards.place(tokens(count, 320, dtype)), torch.linspace(-1, 1, 20).to(dtype)
    out = guards.place(torch.full((count, 20), 7.0, dtype=dtype))
    assert quantized_linear(x, weight, bias, out) is out
    check(x, weight, bias, out, TOLERANCE[dtype])


@given(
    kind=st.sampled_from(KINDS),
    count=st.sampled_from([1, 1, 2, 5, 16, 23, 66]),
    rows=st.sampled_from([1, 7, 24, 65, 70]),
    slices=st.integers(1, 12),
    dtype=st.sampled_from([torch.float16, torch.float32]),
    biased=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape_computes_the_product(
    guards: Guards,
    kind: tuple[int, bool],
    count: int,
    rows: int,
    slices: int,
    dtype: torch.dtype,
    biased: bool,
    seed: int,
) -> None:
    weight = layer(rows, 64 * slices, *kind, seed)
    x = guards.place(tokens(count, 64 * slices, dtype, seed))
    bias = torch.randn(rows).to(dtype) if biased else None
    out = guards.place(torch.full((count, rows), 7.0, dtype=dtype))
    check(x, weight, bias, quantized_linear(x, weight, bias, out), TOLERANCE[dtype])


def test_inputs_that_fill_no_slice() -> None:
    weight, x = layer(5, 48, 8, True), tokens(3, 48, torch.float32)
    check(x, weight, None, quantized_linear(x, weight), 1e-5)
    check(x[:1], weight, None, quantized_linear(x[:1], weight), 1e-5)


def test_one_token_in_bfloat16_is_widened_by_its_bits() -> None:
    """The interpreter's only bf16 path: its words are shifted, not computed with; it truncates the result."""
    weight, x = layer(24, 512, 4, False), tokens(1, 512, torch.bfloat16)
    check(x, weight, None, quantized_linear(x, weight), 2**-7)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(("few", "many"), [(2, 16), (66, 130)])
def test_neighbours_of_a_regime_change_nothing(bits: int, few: int, many: int) -> None:
    weight, x = layer(70, 512, bits, True), tokens(many, 512, torch.float16)
    assert regime(few) == regime(many)
    assert torch.equal(quantized_linear(x, weight)[:few], quantized_linear(x[:few], weight))


@pytest.mark.parametrize("bits", [8, 4])
def test_regimes_agree(bits: int) -> None:
    weight, x = layer(12, 512, bits, True), tokens(65, 512, torch.float16)
    whole = quantized_linear(x, weight).float()
    for count in (1, 16, 64):
        part = quantized_linear(x[:count], weight).float()
        assert (part - whole[:count]).abs().max() <= 4e-3 * whole.abs().max()


def test_counters_are_zero_after_a_layer_whose_inputs_were_cut() -> None:
    weight, x = layer(10, 2048, 8, True), tokens(2, 2048, torch.float32)
    assert tiles.tiles("split_16", 10, 16, 8, torch.float32).splits > 1
    assert config(64, 16)[1] == 1 < config(64, 64)[1]
    first = quantized_linear(x, weight)
    assert (workspace(1, 1, 1, x.device)[1] == 0).all()
    assert torch.equal(first, quantized_linear(x, weight))


def test_cut_does_not_ask_for_the_number_of_tokens() -> None:
    assert [regime(n) for n in (1, 2, 16, 17, 32, 33, 64, 65, 8192)] == [
        "gemv", "split_16", "split_16", "split_32", "split_32", "split_64", "split_64", "gemm", "gemm",
    ]  # fmt: skip
    cut = tiles.tiles("split_16", 4096, 16, 4, torch.bfloat16)
    assert (cut.tokens, cut.splits) == (16, 4)
    assert tiles.tiles("gemm", 4096, 16, 4, torch.bfloat16).splits == 1


def test_rows_may_lie_apart() -> None:
    weight, wide = layer(40, 256, 4, True), tokens(5, 512, torch.float32)
    out = torch.zeros(5, 80)
    quantized_linear(wide[:, 128:384], weight, out=out[:, :40])
    check(wide[:, 128:384], weight, None, out[:, :40], 1e-5)
    assert (out[:, 40:] == 0).all()


def test_no_tokens_no_rows() -> None:
    assert quantized_linear(torch.empty(0, 256), layer(40, 256, 4, True)).shape == (0, 40)


def test_activations_that_do_not_fit_are_refused() -> None:
    weight = layer(40, 256, 4, True)
    with pytest.raises(InputError, match=r"found torch.float32 of shape \(3, 128\), need \(tokens, 256\)"):
        quantized_linear(torch.zeros(3, 128), weight)
    with pytest.raises(InputError, match="float64"):
        quantized_linear(torch.zeros(3, 256, dtype=torch.float64), weight)


def pairs(words: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(words.astype(np.uint32).view(np.int32)).view(dtype).double()


def test_exponents_make_numbers_of_bits() -> None:
    """What `_widen` does with bf16, which the interpreter cannot compute: exact for every value and zero point."""
    low, high = (part.reshape(-1) for part in np.meshgrid(np.arange(256), np.arange(256)))
    words = low | high << 16
    exponent = tiles.EXPONENT_BF16.value
    signed = np.stack([low, high], 1).astype(np.uint8).view(np.int8).reshape(-1)
    both = [pairs(words & mask | exponent, torch.bfloat16) for mask in (0x007F007F, 0x00800080)]
    assert (both[0] - both[1]).tolist() == signed.tolist()
    byte = pairs(words & 0x00FF00FF ^ tiles.BYTES_FP16.value, torch.float16) - tiles.LEAST_BYTE_FP16.value
    assert byte.tolist() == signed.tolist()
    fields = words & 0x000F000F
    expected = np.stack([low & 15, high & 15], 1).reshape(-1)
    for zero in (0, 1, 8, 15):
        for base, least, dtype in (
            (tiles.BASE_BF16, tiles.LEAST_BF16, torch.bfloat16),
            (tiles.BASE_FP16, tiles.LEAST_FP16, torch.float16),
        ):
            numbers = pairs(fields + base.value - zero * 0x00010001, dtype) - least.value
            assert numbers.tolist() == (expected - zero).tolist()
