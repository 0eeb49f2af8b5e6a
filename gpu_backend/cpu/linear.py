"""Dense layers on a CPU, by what it can do.

- AVX-512: oneDNN with weights packed once, in bfloat16 where the CPU multiplies bfloat16 (AVX512-BF16, AMX).
- AVX2: float32 rows as they are; our own kernel for few rows, torch's for many. (oneDNN packed took 22 / 32 / 94 ms for
  1 / 8 / 64 rows of the tiny model, ours 16 / 31 / 90, and it builds new code for every row count.)
The packing operators are private to torch: probed, with the public way behind them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gpu_backend.cpu.kernels import Kernels
from scenarios.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_PACK_ROWS = 64  # oneDNN lays weights out for so many rows; of 1..256 this one was best or next to it at every size

PACKED = "oneDNN packed"

TILE = 256
"""Rows that a dense layer takes at once; more are cut into tiles: weights are reused well enough by then."""

Linear = Callable[[torch.Tensor], torch.Tensor]
"""float32 `(T, in)` -> float32 `(T, out)`."""


def padded_rows(n: int) -> int:
    """The row count at which oneDNN computes n rows.

    It builds (and keeps) code for every row count that it meets, 5 to 10 ms of a step of the tiny model. With these few
    sizes all of it is built before the first measured step; the padding costs 2 to 4 % where it occurs.
    """
    whole, rest = divmod(n, TILE)
    if rest > 64:
        rest = -(-rest // 8) * 8
    elif rest > 16:
        rest = -(-rest // 4) * 4
    return whole * TILE + rest


def row_counts(most: int) -> list[int]:
    """All row counts that a layer meets in batches of up to `most` rows."""
    return sorted({padded_rows(n) for n in range(1, min(most, TILE) + 1)})


def multiplies_bfloat16() -> bool:
    """Whether this CPU has bfloat16 products (AVX512-BF16 or AMX) and this torch can pack weights for them."""
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    if not any(getattr(torch.cpu, check, lambda: False)() for check in checks):
        return False
    return _packed(torch.zeros(16, 16, dtype=torch.bfloat16), None) is not None


def choose_dtype(name: str) -> torch.dtype:
    """The weights' precision; `auto` is the fastest one here.

    Raises:
        InputError: no such precision.
    """
    if name == "auto":
        return torch.bfloat16 if multiplies_bfloat16() else torch.float32
    if name not in DTYPES:
        raise InputError(f"dtype: found {name!r}, allowed: auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def _packed(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear | None:
    """A layer over packed weights, None where this torch or CPU cannot. The operators are private: probed, not assumed."""
    try:
        pack, apply = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
        layout = pack(weight, _PACK_ROWS)

        def linear(x: torch.Tensor) -> torch.Tensor:
            return apply(x.to(weight_dtype), layout, bias, "none", [], "").float()

        weight_dtype = weight.dtype
        linear(torch.zeros(1, weight.shape[1]))
    except (RuntimeError, AttributeError, NotImplementedError):
        return None
    return linear


def make_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype, kernels: Kernels
) -> tuple[Linear, str]:
    """A dense layer from float32 `(out, in)` weights, and the name of what runs it. Keeps one copy of the weights."""
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        packed = _packed(weight, bias)
        if packed is not None:
            return packed, PACKED
    if dtype == torch.float32:
        return lambda x: kernels.linear(x, weight, bias), kernels.name
    return lambda x: torch.nn.functional.linear(x.to(dtype), weight, bias).float(), "torch"
