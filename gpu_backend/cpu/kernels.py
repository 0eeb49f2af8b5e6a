"""The kernels of the CPU path: their interface, and plain torch ones that say what each of them does.

Shapes: T tokens of a step, H hidden, N query heads, K KV heads (N = K * group), D head size, B KV blocks of `block` tokens.
KV caches are `(B, K, block, D)`: float32 or bfloat16, or one byte a value (int8, float8_e4m3fn) with float32 scales `(B, K, block)` beside
them, one for each token and head. Accumulation is float32 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from gpu_backend.cpu.kv_cache import put, written

Array = NDArray[Any]


class Kernels(NamedTuple):
    """One set of kernels, see the torch functions below for what each does."""

    name: str
    add_rms_norm: Callable[..., torch.Tensor]
    qk_norm_rope_write: Callable[..., None]
    decode_attention: Callable[..., None]
    silu_mul: Callable[[torch.Tensor], torch.Tensor]
    linear: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def torch_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`residual += x` in place, then RMSNorm of it: float32 (T, H)."""
    residual += x
    return residual * torch.rsqrt(residual.square().mean(-1, keepdim=True) + eps) * weight


def torch_qk_norm_rope_write(
    qkv: torch.Tensor,
    q_weight: torch.Tensor | None,
    k_weight: torch.Tensor | None,
    eps: float,
    rope: torch.Tensor,
    positions: Array,
    blocks: Array,
    offsets: Array,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    heads: int,
    k_scales: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None,
) -> None:
    """Norm (where weights are given) and rotation of query and key heads, then keys and values into their slots.

    qkv: float32 (at least T, (N + 2K) * D), its query part is changed in place. rope: (window, D), cosines in the first half of a row,
    sines in the second. Token t goes to `cache[blocks[t], :, offsets[t]]`; its position is `positions[t]`.
    """
    tokens, kv_heads, dim = len(positions), k_cache.shape[1], k_cache.shape[3]
    parts = qkv[:tokens].view(tokens, heads + 2 * kv_heads, dim)
    q, k, v = parts[:, :heads], parts[:, heads : heads + kv_heads], parts[:, heads + kv_heads :]
    cos, sin = rope[torch.from_numpy(positions)].unsqueeze(1).chunk(2, dim=-1)

    def turned(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if weight is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    parts[:, :heads] = turned(q, q_weight)
    at, slot = torch.from_numpy(blocks), torch.from_numpy(offsets)
    put(k_cache, k_scales, at, slot, turned(k, k_weight))
    put(v_cache, v_scales, at, slot, v)


def torch_decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    tables: Array,
    starts: Array,
    lengths: Array,
    scale: float,
    out: torch.Tensor,
    k_scales: torch.Tensor | None = None,
    v_scales: torch.Tensor | None = None,
) -> None:
    """Attention of one query token a sequence over its paged KV, into `out`: float32 (at least S, N * D).

    q: float32 (at least S, at least N * D), queries first. Sequence s owns the blocks `tables[starts[s]:]`, of which its first
    `lengths[s]` slots count; nothing else is read. A sequence of length 0 yields zeros.
    """
    kv_heads, block, dim = k_cache.shape[1:]
    heads = out.shape[1] // dim
    for s, length in enumerate(lengths.tolist()):
        if length == 0:
            out[s] = 0.0
            continue
        ids = torch.from_numpy(tables[starts[s] : starts[s] + -(-length // block)]).long()
        k, v = (
            written(*cache, ids).transpose(0, 1).reshape(kv_heads, -1, dim)[:, :length]
            for cache in ((k_cache, k_scales), (v_cache, v_scales))
        )
        queries = q[s, : heads * dim].reshape(kv_heads, heads // kv_heads, dim)
        out[s] = (torch.softmax(queries @ k.transpose(1, 2) * scale, dim=-1) @ v).reshape(-1)


def torch_silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SiLU of the first half of each row times the second: (T, 2I) -> (T, I)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


TORCH = Kernels(
    "torch",
    torch_add_rms_norm,
    torch_qk_norm_rope_write,
    torch_decode_attention,
    torch_silu_mul,
    torch.nn.functional.linear,
)


def best_kernels() -> Kernels:
    """numba's where numba is installed, torch's elsewhere."""
    try:
        from gpu_backend.cpu.numba_kernels import NUMBA
    except ModuleNotFoundError:
        return TORCH
    return NUMBA
