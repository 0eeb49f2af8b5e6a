"""Dense layers with 8- or 4-bit weights and activations in their own precision (W8A16, W4A16), by the number of tokens.

| regime | tokens | computed by |
|---|---|---|
| gemv | 1 | float32 products of streamed words, inputs cut among threads and, where rows are few, programs |
| split_16, split_32, split_64 | 2..16, ..32, ..64 | tiles that many tokens wide, integer weights, scales on the sums; inputs cut among programs |
| gemm | 65 and more | tiles of 128 x 128; int4 weights are scaled and rounded to the activations' precision before they are multiplied |

Within a regime tiles and splits follow from the layer's shape alone: the numbers of a row do not depend on what else is in the
batch. Between regimes the order of summation changes, and step times jump.
"""

from __future__ import annotations

import torch

from gpu_backend.kernels import shapes
from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.quantized_gemv import gemv
from gpu_backend.kernels.quantized_gemv import specialisation as gemv_specialisation
from gpu_backend.kernels.quantized_tiles import specialisation as tiles_specialisation
from gpu_backend.kernels.quantized_tiles import tiled
from gpu_backend.quantization import QuantizedWeight, dequantize
from scenarios.errors import InputError

REGIMES = {"gemv": 1, "split_16": 16, "split_32": 32, "split_64": 64}
"""Most tokens of each regime but the last, `gemm`."""

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def regime(tokens: int) -> str:
    """The kernel that so many tokens take."""
    return next((name for name, most in REGIMES.items() if tokens <= most), "gemm")


def quantized_linear(
    x: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """`x (T, in) @ weights.T + bias` with float32 sums.

    Args:
        x: bfloat16, float16 or float32; rows contiguous, their stride a multiple of 16 bytes.
        bias: `(out,)`.
        out: `(T, out)` to write to, rows contiguous.

    Raises:
        InputError: shapes or precisions that do not fit together.
    """
    rows, inputs = weight.shape
    if x.ndim != 2 or x.shape[1] != inputs or x.dtype not in DTYPES:
        raise InputError(
            f"quantized_linear: found {x.dtype} of shape {tuple(x.shape)}, "
            f"need (tokens, {inputs}) in bfloat16, float16 or float32"
        )
    if x.stride(1) != 1 or x.stride(0) * x.element_size() % 16 or x.data_ptr() % 16:
        x = x.contiguous() if x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)
    if out is None:
        out = torch.empty(len(x), rows, dtype=x.dtype, device=x.device)
    if len(x) == 0:
        return out
    how = regime(len(x))
    if how == "gemv":
        gemv(x, weight, bias, out)
    else:
        tiled(x, weight, bias, out, how)
    return out


def quantized_linear_reference(
    x: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The same with the whole matrix dequantised; products and sums in float32, in float64 for float64 inputs."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    result = x.to(compute) @ dequantize(weight).to(compute).T
    if bias is not None:
        result = result + bias.to(compute)
    result = result.to(x.dtype)
    return result if out is None else out.copy_(result)


def _specialisation(layer: str, tokens: int, bits: int, zeros: bool = False) -> Specialisation:
    rows, inputs = shapes.DENSE[layer]
    how = regime(tokens)
    name = f"{layer}, int{bits}{' with zero points' if zeros else ''}, {tokens} tokens ({how})"
    if how == "gemv":
        return gemv_specialisation(name, rows, inputs, bits, zeros)
    return tiles_specialisation(name, how, tokens, rows, inputs, bits, zeros)


SPECIALISATIONS = [
    # Each regime where inputs are cut among programs, and where they are not (gate_up: enough rows); others compile the same kernels.
    *(_specialisation("Llama-3.1-8B o", tokens, bits) for bits in (8, 4) for tokens in (1, 16, 32, 64, 512)),
    *(_specialisation("Llama-3.1-8B gate_up", tokens, bits) for bits in (8, 4) for tokens in (1, 16, 64)),
    *(_specialisation("Llama-3.1-8B o", tokens, 4, True) for tokens in (1, 16, 512)),
    *(_specialisation("Qwen3-0.6B down", tokens, bits) for bits in (8, 4) for tokens in (1, 16)),
]
