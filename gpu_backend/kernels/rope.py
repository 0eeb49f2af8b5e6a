"""Norm of query and key heads, rotary positions, and the write of keys and values into the paged cache, in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.quantization import FP8_MOST, INT8_MOST

_FORMATS = {torch.int8: "int8", torch.float8_e4m3fn: "fp8"}
_MOST = {"int8": INT8_MOST, "fp8": FP8_MOST, "plain": 1.0}


@triton.jit
def _e4m3(x):
    """float32 up to 448 to the bits of the nearest float8_e4m3fn, ties to even: no chip needs a conversion of its own."""
    size = tl.minimum(tl.abs(x), 448.0)
    bits = size.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)  # The exponents' biases are 127 and 7.
    # Below 2**-6 numbers are 2**-9 apart, as float32 is from 2**14.
    small = (size + 16384.0).to(tl.int32, bitcast=True) & 0xF
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (tl.where(size < 0.015625, small, normal) | sign).to(tl.uint8)


@triton.jit
def _turned(low, high, weight, cos, sin, at, eps, DIM: tl.constexpr):
    """Heads (rows, DIM / 2) in halves: normed where there is a weight, then rotated."""
    if weight is not None:
        scale = tl.rsqrt((tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)) / DIM + eps)
        inside = at < DIM // 2
        low = low * scale[:, None] * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)[None, :]
        high = high * scale[:, None] * tl.load(weight + DIM // 2 + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    return low * cos - high * sin, high * cos + low * sin


@triton.jit
def _write(cache, scales, place, low, high, at, inside, HALF: tl.constexpr, FORMAT: tl.constexpr, MOST: tl.constexpr):
    """Heads in halves, each into its slot `place` (rows,), divided by its scale where the cache keeps one."""
    if FORMAT != "plain":
        most = tl.maximum(tl.max(tl.abs(low), axis=1), tl.max(tl.abs(high), axis=1))
        tl.store(scales + place, most / MOST, mask=tl.max(inside.to(tl.int32), axis=1) > 0)
        inverse = tl.where(most > 0, MOST / tl.where(most > 0, most, 1.0), 0.0)[:, None]
        low, high = low * inverse, high * inverse
    to = cache + place[:, None] * 2 * HALF + at[None, :]
    if FORMAT == "int8":
        low, high = tl.floor(low + 0.5), tl.floor(high + 0.5)
    elif FORMAT == "fp8":
        low, high = _e4m3(low), _e4m3(high)
    tl.store(to, low.to(cache.dtype.element_ty), mask=inside)
    tl.store(to + HALF, high.to(cache.dtype.element_ty), mask=inside)


@triton.jit
def _qk_norm_rope_write(
    qkv, q_weight, k_weight, eps, rope, positions, slots, k_cache, v_cache, k_scale, v_scale, block_size, row_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, FORMAT: tl.constexpr, MOST: tl.constexpr,
    Q_TILE: tl.constexpr, KV_TILE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """KV_TILE KV heads of one token with their query heads. Tiles are powers of two, maybe wider than what they hold."""
    token, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * KV_TILE
    slot = tl.load(slots + token)
    if slot < 0:
        return
    half: tl.constexpr = DIM // 2
    group: tl.constexpr = HEADS // KV_HEADS
    at = tl.arange(0, HALF)
    position = tl.load(positions + token).to(tl.int64)
    cos = tl.load(rope + position * DIM + at, mask=at < half, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(rope + position * DIM + half + at, mask=at < half, other=0.0).to(tl.float32)[None, :]
    row = qkv + token * row_stride

    member = tl.arange(0, Q_TILE)
    head = first * group + member
    inside = ((member < KV_TILE * group) & (head < HEADS))[:, None] & (at < half)[None, :]
    q = row + head[:, None] * DIM + at[None, :]
    low = tl.load(q, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(q + half, mask=inside, other=0.0).to(tl.float32)
    low, high = _turned(low, high, q_weight, cos, sin, at, eps, DIM)
    tl.store(q, low.to(qkv.dtype.element_ty), mask=inside)
    tl.store(q + half, high.to(qkv.dtype.element_ty), mask=inside)

    head = first + tl.arange(0, KV_TILE)
    inside = (head < KV_HEADS)[:, None] & (at < half)[None, :]
    place = ((slot // block_size) * KV_HEADS + head) * block_size + slot % block_size
    k = row + (HEADS + head)[:, None] * DIM + at[None, :]
    low = tl.load(k, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(k + half, mask=inside, other=0.0).to(tl.float32)
    low, high = _turned(low, high, k_weight, cos, sin, at, eps, DIM)
    _write(k_cache, k_scale, place, low, high, at, inside, half, FORMAT, MOST)

    v = k + KV_HEADS * DIM
    low = tl.load(v, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(v + half, mask=inside, other=0.0).to(tl.float32)
    _write(v_cache, v_scale, place, low, high, at, inside, half, FORMAT, MOST)


def _config(heads: int, kv_heads: int, dim: int) -> tuple[dict[str, int], int]:
    """Tile and warps of a program: enough KV heads that every thread of a warp has 8 elements of half a head of them, which is
    one 16-byte access of 16 bits."""
    half = triton.next_power_of_2(dim // 2)
    kv_tile = min(max(1, 256 // half), triton.next_power_of_2(kv_heads))
    q_tile = triton.next_power_of_2(kv_tile * (heads // kv_heads))
    return {"Q_TILE": q_tile, "KV_TILE": kv_tile, "HALF": half}, max(1, min(4, q_tile * half // 1024))


def qk_norm_rope_write(
    qkv: torch.Tensor,
    q_weight: torch.Tensor | None,
    k_weight: torch.Tensor | None,
    eps: float,
    rope: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    num_heads: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Query heads normed and rotated in place; key heads normed and rotated, with the value heads, into the cache.

    Args:
        qkv: `(T, (N + 2K) * D)`, queries, keys, values; rows may be apart. Only its query part changes.
        q_weight, k_weight: `(D,)` of the norm, None for none.
        rope: float32 `(window, D)`: cosines in the first half of a row, sines in the second; halves of a head are rotated against
            each other (Hugging Face's order).
        positions: `(T,)` int32.
        slots: `(T,)` int64, block * block size + offset. A row with -1 is padding: it is neither read nor written.
        k_cache, v_cache: contiguous `(B, K, block size, D)`, float, int8 or float8_e4m3fn.
        k_scale, v_scale: contiguous float32 `(B, K, block size)`, of int8 and fp8 caches: absmax of the head over 127 or 448. The
            cache holds value / scale, rounded to the nearest: half up in int8, half to even in fp8.
    """
    tokens, (_, kv_heads, block_size, dim) = len(slots), k_cache.shape
    assert qkv.stride(1) == 1
    for tensor in (rope, positions, slots, k_cache, v_cache):
        assert tensor.is_contiguous()
    if not tokens:
        return
    tile, warps = _config(num_heads, kv_heads, dim)
    kind = _FORMATS.get(k_cache.dtype, "plain")
    if kind == "fp8":
        k_cache, v_cache = k_cache.view(torch.uint8), v_cache.view(torch.uint8)
    _qk_norm_rope_write[(tokens, triton.cdiv(kv_heads, tile["KV_TILE"]))](
        qkv, q_weight, k_weight, eps, rope, positions, slots, k_cache, v_cache, k_scale, v_scale, block_size, qkv.stride(0),
        HEADS=num_heads, KV_HEADS=kv_heads, DIM=dim, FORMAT=kind, MOST=_MOST[kind], **tile, num_warps=warps,
    )  # fmt: skip


def qk_norm_rope_write_reference(
    qkv: torch.Tensor,
    q_weight: torch.Tensor | None,
    k_weight: torch.Tensor | None,
    eps: float,
    rope: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    num_heads: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """What `qk_norm_rope_write` computes, in float32 at least. Waits for the device: it drops rows of padding."""
    _, kv_heads, block_size, dim = k_cache.shape
    wide = torch.promote_types(qkv.dtype, torch.float32)
    used = slots >= 0
    slots = slots[used]
    heads = qkv[: len(used)][used].to(wide).view(len(slots), num_heads + 2 * kv_heads, dim)
    q, k, v = heads.split([num_heads, kv_heads, kv_heads], dim=1)
    cos, sin = rope[positions[used].long()].to(wide).unsqueeze(1).chunk(2, dim=-1)

    def turned(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        if weight is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.to(wide)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def write(x: torch.Tensor, cache: torch.Tensor, scale: torch.Tensor | None) -> None:
        at = slots // block_size, slice(None), slots % block_size
        if scale is not None:
            most, limit = x.abs().amax(-1), _MOST[_FORMATS[cache.dtype]]
            scale[at] = (most / limit).to(scale.dtype)
            x = x * torch.where(most > 0, limit / most, 0.0).unsqueeze(-1)
            x = torch.floor(x + 0.5) if cache.dtype == torch.int8 else x
        if cache.dtype == torch.float8_e4m3fn:  # Has no indexed assignment; its bytes have.
            cache.view(torch.uint8)[at] = x.to(cache.dtype).view(torch.uint8)
        else:
            cache[at] = x.to(cache.dtype)

    places = used.nonzero().squeeze(1)
    qkv[places, : num_heads * dim] = turned(q, q_weight).flatten(1).to(qkv.dtype)
    write(turned(k, k_weight), k_cache, k_scale)
    write(v, v_cache, v_scale)


def _launch(name: str, heads: int, kv_heads: int, dim: int, norm: bool, kind: str) -> Specialisation:
    tile, warps = _config(heads, kv_heads, dim)
    tokens, bf16 = 64, torch.bfloat16
    weight = bf16 if norm else None
    cache = {"plain": bf16, "int8": torch.int8, "fp8": torch.uint8}[kind]
    scale = None if kind == "plain" else torch.float32
    moved = (2 * heads + 2 * kv_heads) * dim * 2 + 2 * kv_heads * (dim * cache.itemsize + (4 if scale else 0)) + dim * 4
    return Specialisation(
        name=f"{name}, {tokens} rows, {'bf16' if kind == 'plain' else kind} cache",
        kernel=_qk_norm_rope_write,
        args=(
            bf16, weight, weight, 1e-6, torch.float32, torch.int32, torch.int64, cache, cache, scale, scale, 16,
            (heads + 2 * kv_heads) * dim,
        ),
        constexprs={"HEADS": heads, "KV_HEADS": kv_heads, "DIM": dim, "FORMAT": kind, "MOST": _MOST[kind], **tile},
        num_warps=warps,
        bytes=float(tokens * moved),
        expects={"ld.128", "st.128"},
    )  # fmt: skip


SPECIALISATIONS = [
    _launch(name, heads, kv_heads, dim, norm, kind)
    for name, heads, kv_heads, dim, norm in (
        ("Llama-3.1-8B", 32, 8, 128, False),
        ("Qwen3-0.6B", 16, 8, 128, True),
        ("Qwen3-32B", 64, 8, 128, True),
        ("SmolLM2-135M", 9, 3, 64, False),
    )
    for kind in _MOST
]
