"""Dense layers over int8 and int4 weights on a CPU.

Few rows go through torch's kernels, which read the small weights and multiply them in bfloat16; many rows are worth widening the
weights to float32 in every step, as engines do on GPUs. On AVX2, layers of 3072 x 512 weights from memory took, in ms:

    rows      1     4    16    32    64   256
    float32   0.59  0.84  1.77  2.21  3.44  13.2
    int8      0.33  0.39  1.50  2.84  4.6   15.5    from 33 rows on widened
    int4      0.27  0.35  1.36  2.62  4.6   16.3

so small weights help where few rows wait for them, and cost where many rows wait for arithmetic. The kernels are private to torch:
probed, with the public way behind them, a float32 layer over the rounded values, whose times are those of float32.
"""

from __future__ import annotations

from functools import cache

import torch

from gpu_backend.cpu.kernels import Kernels
from gpu_backend.cpu.linear import DTYPES, Linear, choose_dtype
from gpu_backend.quantization import QuantizedWeight, dequantize, quantize, unpack
from scenarios.errors import InputError

BITS = {"int8": 8, "int4": 4}
"""Of a weight, by the name of the precision."""

FEW_ROWS = 32
"""Most rows that torch's kernels are given."""


def choose_precision(name: str) -> tuple[torch.dtype, str]:
    """Of a precision's name: what all else is computed in, and what dense layers are rounded to, `auto` for not at all.

    Raises:
        InputError: no such precision.
    """
    if name in BITS:
        return choose_dtype("auto"), name
    if name not in ("auto", *DTYPES):
        raise InputError(f"dtype: found {name!r}, allowed: auto, {', '.join((*DTYPES, *BITS))}")
    return choose_dtype(name), "auto"


def make_quantized_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, bits: int, kernels: Kernels, *, name: str = "weight"
) -> Linear:
    """A dense layer from float `(out, in)` weights, rounded to 8 or 4 bits as `gpu_backend.quantization` does.

    Raises:
        InputError: inputs that no scale fits.
    """
    rounded = quantize(weight, bits, name=name)
    if not has_kernel(bits):
        wide = dequantize(rounded)
        return lambda x: kernels.linear(x, wide, bias)
    few, widened = _eight(rounded) if bits == 8 else _four(rounded)

    def linear(x: torch.Tensor) -> torch.Tensor:
        if len(x) > FEW_ROWS:
            return kernels.linear(x, widened(), bias)
        out = few(x)
        return out if bias is None else out.add_(bias)

    return linear


def kind(bits: int) -> str:
    """What computes such layers here."""
    if has_kernel(bits):
        return (
            f"torch's int{bits} kernel up to {FEW_ROWS} rows, int{bits} weights widened to float32 in every step above"
        )
    return f"float32 layers over int{bits} values: this torch has no int{bits} kernel for this CPU, times are those of float32"


@cache
def has_kernel(bits: int) -> bool:
    """Whether this torch multiplies such weights on this CPU, and rightly."""
    draws = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(rows, 128, generator=draws) for rows in (64, 3))
    rounded = quantize(weight, bits)
    try:
        found = (_eight(rounded) if bits == 8 else _four(rounded))[0](x)
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    expected = x @ dequantize(rounded).t()
    return bool(((found - expected).abs().max() < 0.02 * expected.abs().max()).item())


def _eight(weight: QuantizedWeight) -> tuple[Linear, _Widened]:
    """Scales are of rows, so they can wait until after the product, in float32."""
    values = unpack(weight.packed, 8)[:, : weight.shape[1]].to(torch.int8).contiguous()
    ones = torch.ones(len(values), dtype=torch.bfloat16)
    scales = weight.scales

    def few(x: torch.Tensor) -> torch.Tensor:
        return torch._weight_int8pack_mm(x.bfloat16(), values, ones).float().mul_(scales)

    return few, _Widened(values, scales[:, None])


def _four(weight: QuantizedWeight) -> tuple[Linear, _Widened]:
    """torch lays the weights out for its kernel; for widening they are kept a second time."""
    values = unpack(weight.packed, 4)[:, : weight.shape[1]].to(torch.int32)
    layout = torch._convert_weight_to_int4pack_for_cpu(values, 2)
    scales = weight.scales.float()
    steps = torch.stack([scales, torch.zeros_like(scales)], -1).bfloat16().contiguous()
    group = weight.group_size

    def few(x: torch.Tensor) -> torch.Tensor:
        return torch._weight_int4pack_mm_for_cpu(x.bfloat16(), layout, group, steps).float()

    centred = (values - 8).to(torch.int8).view(len(values), -1, group)
    return few, _Widened(centred, scales.t().unsqueeze(-1).contiguous())


class _Widened:
    """Called, the float32 `(out, in)` weights: `values` times `scales`, which has the same dimensions, in memory that all layers
    share until one of them is asked again."""

    _memory = torch.empty(0)

    def __init__(self, values: torch.Tensor, scales: torch.Tensor) -> None:
        self.values, self.scales = values, scales
        if _Widened._memory.numel() < values.numel():
            with torch.inference_mode(False):
                _Widened._memory = torch.empty(values.numel())

    def __call__(self) -> torch.Tensor:
        wide = _Widened._memory[: self.values.numel()].view(self.values.shape)
        return torch.mul(self.values, self.scales, out=wide).view(len(self.values), -1)
