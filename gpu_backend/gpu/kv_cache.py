"""Paged KV memory of all layers on a device, in the precision asked for."""

from __future__ import annotations

import torch

from gpu_backend.quantization import FP8_MOST, INT8_MOST, absmax_scaled
from scenarios.models import ModelSpec

KV_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}

SCALED = (torch.int8, torch.float8_e4m3fn)
"""Precisions that keep a scale for every token and head."""


class KVCache:
    """keys, values: `(layers, blocks, kv_heads, block_size, head_dim)`; their scales float32 without the last dimension, None
    where the precision needs none. Zeroed: block 0, which padding reads, stays finite."""

    def __init__(
        self, spec: ModelSpec, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (spec.num_layers, num_blocks, spec.num_kv_heads, block_size, spec.head_dim)
        self.dtype = dtype
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.key_scales: torch.Tensor | None = None
        self.value_scales: torch.Tensor | None = None
        if dtype in SCALED:
            self.key_scales = torch.zeros(shape[:-1], device=device)
            self.value_scales = torch.zeros(shape[:-1], device=device)

    def layer(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Keys, values and their scales of layer i."""
        if self.key_scales is None or self.value_scales is None:
            return self.keys[i], self.values[i], None, None
        return self.keys[i], self.values[i], self.key_scales[i], self.value_scales[i]

    def fill(self, blocks: torch.Tensor, generator: torch.Generator) -> None:
        """Standard-normal numbers in these blocks of every layer, the same in all of them."""
        for part, scales in ((self.keys, self.key_scales), (self.values, self.value_scales)):
            one = torch.empty(part.shape[2:], device=part.device).normal_(generator=generator)
            for layer in range(part.shape[0]):
                if scales is None:
                    part[layer][blocks] = one.to(part.dtype).expand(len(blocks), -1, -1, -1)
                else:
                    scaled, scale = absmax_scaled(one, INT8_MOST if part.dtype == torch.int8 else FP8_MOST)
                    scaled = scaled.round() if part.dtype == torch.int8 else scaled
                    scales[layer][blocks] = scale.expand(len(blocks), -1, -1)
                    # fp8 has no indexed assignment: its bytes have.
                    bytes_ = scaled.to(part.dtype).view(torch.int8).expand(len(blocks), -1, -1, -1)
                    part.view(torch.int8)[layer][blocks] = bytes_
