"""Dense layers in the precision asked for: plain, or int8 and int4 weights that are widened as they are read."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_backend.gpu.kernel_set import KernelSet
from gpu_backend.quantization import quantize
from scenarios.errors import InputError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

QUANTIZED = {"int8": 8, "int4": 4}
"""Weight-only precisions and their bits; activations keep theirs."""

Dense = Callable[[torch.Tensor], torch.Tensor]
"""`(T, in)` -> `(T, out)` in the dtype of the activations."""


def check_precision(what: str, name: str, allowed: tuple[str, ...]) -> None:
    """Raises InputError for a precision that is not there."""
    if name not in allowed:
        raise InputError(f"{what}: found {name!r}, allowed: {', '.join(allowed)}")


def make_dense(
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    dtype: torch.dtype,
    precision: str,
    kernels: KernelSet,
    name: str = "weight",
) -> Dense:
    """A layer of `(out, in)` weights. precision: `auto` for that of the activations, int8, or int4.
    name: for errors."""
    bias = None if bias is None else bias.to(dtype)
    if precision in QUANTIZED:
        packed = quantize(weight, QUANTIZED[precision], name=name)
        return lambda x: kernels.quantized_linear(x, packed, bias)
    weight = weight.to(dtype)
    return lambda x: kernels.linear(x, weight, bias)
