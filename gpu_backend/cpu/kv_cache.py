"""Paged KV memory of all layers on a CPU, in the precision asked for."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.quantization import FP8_MOST, INT8_MOST, absmax_scaled
from scenarios.errors import InputError
from scenarios.models import ModelSpec

KV_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}

MOST = {torch.int8: INT8_MOST, torch.float8_e4m3fn: FP8_MOST}
"""Largest number used of the precisions that keep a scale for every token and head."""


LayerCache = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]
"""Keys and values of a layer, and their scales."""


def choose_kv_dtype(name: str) -> str:
    """The name of a KV precision; `auto` is bfloat16: half the memory traffic of decode attention.

    Raises:
        InputError: no such precision.
    """
    if name == "auto":
        return "bfloat16"
    if name not in KV_DTYPES:
        raise InputError(f"kv_dtype: found {name!r}, allowed: auto, {', '.join(KV_DTYPES)}")
    return name


def kv_bytes(spec: ModelSpec, kv_dtype: str) -> float:
    """Bytes of one token's keys and values in every layer, scales included."""
    plain = spec.kv_bytes_per_token(kv_dtype)
    return plain * (1 + 4 / spec.head_dim) if KV_DTYPES[kv_dtype] in MOST else plain


def narrowed(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """x `(..., head_dim)` in one byte a value, and the float32 scales `(...)`."""
    units, scale = absmax_scaled(x, MOST[dtype])
    return (units.round() if dtype == torch.int8 else units).to(dtype), scale


class KVCache:
    """keys, values: `(layers, blocks, kv_heads, block_size, head_dim)`; their scales float32 without the last dimension, None
    where the precision needs none."""

    def __init__(self, spec: ModelSpec, num_blocks: int, block_size: int, dtype: torch.dtype) -> None:
        shape = (spec.num_layers, num_blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self.dtype = dtype
        # Not cleared: memory becomes real when a block is first written, and nothing unwritten is ever read.
        # numpy's allocator, which asks for huge pages: blocks lie anywhere, and decode attention got 16 % faster.
        bits = np.float32 if dtype == torch.float32 else np.uint16 if dtype == torch.bfloat16 else np.uint8
        self.keys, self.values = (torch.from_numpy(np.empty(shape, bits)).view(dtype) for _ in range(2))
        self.key_scales: torch.Tensor | None = None
        self.value_scales: torch.Tensor | None = None
        if dtype in MOST:
            self.key_scales, self.value_scales = (torch.from_numpy(np.empty(shape[:-1], np.float32)) for _ in range(2))

    def layer(self, i: int) -> LayerCache:
        """Keys, values and their scales of layer i."""
        if self.key_scales is None or self.value_scales is None:
            return self.keys[i], self.values[i], None, None
        return self.keys[i], self.values[i], self.key_scales[i], self.value_scales[i]

    def fill(self, blocks: NDArray[np.int64], draws: np.random.Generator) -> None:
        """Standard-normal numbers in these blocks, the same in all of them."""
        ids = torch.from_numpy(blocks)
        for part, scales in ((self.keys, self.key_scales), (self.values, self.value_scales)):
            one = torch.from_numpy(draws.standard_normal(part[:, :1].shape, dtype=np.float32))
            if scales is None:
                part[:, ids] = one.to(part.dtype).expand(-1, len(blocks), -1, -1, -1)
            else:
                narrow, scale = narrowed(one, part.dtype)
                _indexable(part)[:, ids] = _indexable(narrow).expand(-1, len(blocks), -1, -1, -1)
                scales[:, ids] = scale.expand(-1, len(blocks), -1, -1)


def written(cache: torch.Tensor, scales: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor:
    """Blocks of one layer's keys or values, float32 `(n, kv_heads, block_size, head_dim)`."""
    found = _indexable(cache).index_select(0, ids).view(cache.dtype).float()
    return found if scales is None else found.mul_(scales.index_select(0, ids).unsqueeze(-1))


def put(
    cache: torch.Tensor, scales: torch.Tensor | None, blocks: torch.Tensor, offsets: torch.Tensor, x: torch.Tensor
) -> None:
    """Writes `(T, kv_heads, head_dim)` keys or values of one layer, token t to slot `offsets[t]` of block `blocks[t]`."""
    if scales is None:
        cache[blocks, :, offsets] = x.to(cache.dtype)
        return
    narrow, scale = narrowed(x, cache.dtype)
    _indexable(cache)[blocks, :, offsets] = _indexable(narrow)
    scales[blocks, :, offsets] = scale


def _indexable(x: torch.Tensor) -> torch.Tensor:
    """fp8 has no indexed reads or writes: its bytes have."""
    return x.view(torch.uint8) if x.dtype == torch.float8_e4m3fn else x
