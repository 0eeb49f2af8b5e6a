"""Dense layers on a CPU: oneDNN with weights packed once where torch offers it, `F.linear` elsewhere.

Measured on one AVX2 core (float32, the 41.5M weights of the tiny Qwen3 shape, 1 / 8 / 64 rows): packed 27 / 37 / 94 ms less the
head's share, F.linear 19 / 43 / 108. In bfloat16 packing needs AVX-512; it is faster than float32 only where
the CPU also multiplies bfloat16, so `choose_dtype` asks for that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from scenarios.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_PACK_ROWS = 64  # oneDNN lays weights out for so many rows; of 1..256 this one was best or next to it at every size

TILE = 256
"""Rows that a dense layer takes at once; more are cut into tiles: weights are reused well enough by then."""

Linear = Callable[[torch.Tensor], torch.Tensor]
"""float32 `(T, in)` -> float32 `(T, out)`."""


def padded_rows(n: int) -> int:
    """The row count at which n rows are computed.

    oneDNN builds (and keeps) code for every row count that it meets, 5 to 10 ms of a step of the tiny model. With these few
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


def make_linear(weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype) -> tuple[Linear, str]:
    """A dense layer from float32 `(out, in)` weights, and the name of what runs it. Keeps one copy of the weights."""
    weight = weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    packed = _packed(weight, bias)
    if packed is not None:
        return packed, "oneDNN packed"
    return lambda x: torch.nn.functional.linear(x.to(dtype), weight, bias).float(), "F.linear"
