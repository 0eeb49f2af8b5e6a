"""What the attention kernels share: one tile of keys and values of a paged cache, in any precision that a cache has.

Caches are contiguous `(B, K, bs, D)`: B blocks of bs tokens, K KV heads of D numbers. A quantised cache (int8, fp8 as float8_e4m3fn)
has a float32 scale for every token and head, `(B, K, bs)`. It is never widened as a whole: scales of keys multiply scores, scales of
values multiply probabilities. Its bytes are read two at a time, since a transposed operand of a matrix product is brought from shared
memory in units of 16 bits: the low bytes are the even dimensions, the high bytes the odd ones, and each half has a product of its own.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from scenarios.errors import InputError

LIFT = tl.constexpr(4096.0)
"""Probabilities times value scales are float16 in a product with a quantised cache: lifted, they stay clear of its subnormals."""

FP8_BITS = tl.constexpr(256.0)
"""An e4m3 number moved into the fields of a float16 is this much too small: the exponents' biases are 7 and 15."""

_LOG2_E = 1.4426950408889634

_INT8_HALVES = tl.constexpr("""{
    .reg .b32 biased, low, high, bias;
    mov.b32 bias, 0x64806480;
    xor.b32 biased, $2, 0x80808080;
    prmt.b32 low, biased, 0x64646464, 0x4240;
    prmt.b32 high, biased, 0x64646464, 0x4341;
    sub.f16x2 $0, low, bias;
    sub.f16x2 $1, high, bias;
}""")

_FP8_HALVES = tl.constexpr("""{
    .reg .b32 low, magnitude;
    shl.b32 low, $2, 8;
    shr.b32 magnitude, low, 1;
    and.b32 magnitude, magnitude, 0x3f803f80;
    lop3.b32 $0, low, 0x80008000, magnitude, 0xea;
    shr.b32 magnitude, $2, 1;
    and.b32 magnitude, magnitude, 0x3f803f80;
    lop3.b32 $1, $2, 0x80008000, magnitude, 0xea;
}""")


@triton.jit
def halves(pairs, FORMAT: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The low and the high bytes of int16 pairs as float16; e4m3 ones come out 256 times too small.

    int8: the byte plus 128 is put under the exponent of 1024, which float16 holds exactly. fp8: sign, exponent and mantissa are moved
    to where float16 has them, subnormal numbers included, so that no chip needs a conversion of its own. In assembly each
    instruction does that for two pairs; the compiler would take one at a time.
    """
    if ASSEMBLY:
        CODE: tl.constexpr = _INT8_HALVES if FORMAT == "int8" else _FP8_HALVES
        low, high = tl.inline_asm_elementwise(
            CODE, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    elif FORMAT == "int8":
        biased = pairs ^ -32640  # 0x8080
        low = ((biased & 0xFF) | 0x6400).to(tl.float16, bitcast=True) - 1152.0
        high = (((biased >> 8) & 0xFF) | 0x6400).to(tl.float16, bitcast=True) - 1152.0
    else:
        low = (((pairs & 0x7F) << 7) | ((pairs & 0x80) << 8)).to(tl.float16, bitcast=True)
        high = (((pairs & 0x7F00) >> 1) | (pairs & -32768)).to(tl.float16, bitcast=True)
    return low, high


@triton.jit
def load_queries(at, live, DIM: tl.constexpr, FORMAT: tl.constexpr, COMPUTE: tl.constexpr):
    """Query rows `at` (rows, 1): whole, or their even and odd dimensions for a quantised cache. Rows that are not live are zero."""
    if FORMAT == "plain":
        q_even = tl.load(at + tl.arange(0, DIM)[None, :], mask=live[:, None], other=0.0).to(COMPUTE)
        q_odd = q_even
    else:
        evens = 2 * tl.arange(0, DIM // 2)[None, :]
        q_even = tl.load(at + evens, mask=live[:, None], other=0.0).to(COMPUTE)
        q_odd = tl.load(at + evens + 1, mask=live[:, None], other=0.0).to(COMPUTE)
    return q_even, q_odd


@triton.jit
def attend_tile(
    q_even, q_odd, acc_even, acc_odd, top, total, k_cache, v_cache, k_scale, v_scale, slots, inside, seen, scale,
    WIDTH: tl.constexpr, FORMAT: tl.constexpr, ASSEMBLY: tl.constexpr, MASK: tl.constexpr, LAZY: tl.constexpr,
):  # fmt: skip
    """One tile of keys of an online softmax in base 2. Products in float32 are sums of three in tf32, precise to some 1e-6.

    Args:
        acc_even, acc_odd, top, total: state, `(rows, WIDTH)` twice, `(rows,)` and `(rows,)`: weighted values, largest score, sum of
            the weights. LAZY: total is `(rows, tile)` and is summed at the end, which saves an exchange between warps a tile.
        slots: `(tile,)` int64, places of the keys in units of WIDTH.
        inside: `(tile,)`, keys that exist; seen: `(rows, tile)` or broadcast to it, keys that a row may attend to. Neither is looked
            at without MASK. What does not exist is not loaded: times zero it could still be NaN.
        scale: of the scores, with log2(e) in it.
    """
    at = slots[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    if MASK:
        k = tl.load(k_cache + at, mask=inside[:, None], other=0.0)
        v = tl.load(v_cache + at, mask=inside[:, None], other=0.0)
    else:
        k = tl.load(k_cache + at)
        v = tl.load(v_cache + at)
    if FORMAT == "plain":
        scores = tl.dot(q_even, tl.trans(k.to(q_even.dtype)), input_precision="tf32x3")
    else:
        if MASK:
            k_factor = tl.load(k_scale + slots, mask=inside, other=0.0) * scale
            v_factor = tl.load(v_scale + slots, mask=inside, other=0.0) * LIFT
        else:
            k_factor = tl.load(k_scale + slots) * scale
            v_factor = tl.load(v_scale + slots) * LIFT
        k_even, k_odd = halves(k, FORMAT, ASSEMBLY)
        scores = tl.dot(q_odd, tl.trans(k_odd), tl.dot(q_even, tl.trans(k_even))) * k_factor[None, :]
    if MASK:
        scores = tl.where(seen, scores, float("-inf"))
    # The scale of all scores waits for the subtraction, into which it fuses; it is positive.
    SCALE: tl.constexpr = FORMAT == "plain"
    new = tl.maximum(top, tl.max(scores, 1) * scale if SCALE else tl.max(scores, 1))
    # A row may have seen no key yet; the difference of two infinities would be NaN.
    base = tl.where(new == float("-inf"), 0.0, new) if MASK else new
    p = tl.exp2((scores * scale if SCALE else scores) - base[:, None])
    fade = tl.exp2(top - base)
    total = total * fade[:, None] + p if LAZY else total * fade + tl.sum(p, 1)
    if FORMAT == "plain":
        acc_even = tl.dot(p.to(q_even.dtype), v.to(q_even.dtype), acc_even * fade[:, None], input_precision="tf32x3")
    else:
        weights = (p * v_factor[None, :]).to(tl.float16)
        v_even, v_odd = halves(v, FORMAT, ASSEMBLY)
        acc_even = tl.dot(weights, v_even, acc_even * fade[:, None])
        acc_odd = tl.dot(weights, v_odd, acc_odd * fade[:, None])
    return acc_even, acc_odd, new, total


@triton.jit
def attended(acc_even, acc_odd, total, FORMAT: tl.constexpr):
    """The result of an online softmax, `(rows, D)` float32; a row that saw nothing yields zeros."""
    share = 1.0 / tl.where(total == 0.0, 1.0, total)
    if FORMAT == "plain":
        result = acc_even * share[:, None]
    elif FORMAT == "int8":
        result = tl.interleave(acc_even, acc_odd) * (share * (1.0 / LIFT))[:, None]
    else:
        result = tl.interleave(acc_even, acc_odd) * (share * (FP8_BITS / LIFT))[:, None]
    return result


class Cache(NamedTuple):
    """A cache as the kernels take it.

    keys, values: rows of `width` units for a token and head: its numbers, or int16 pairs of its bytes.
    format: "plain", "int8" or "fp8". scale: factor of the scores, log2(e) and what the format leaves out included. compute: dtype
    of the operands of matrix products; what the interpreter computes in bfloat16 is wrong, so there it is float32.
    """

    keys: torch.Tensor
    values: torch.Tensor
    width: int
    format: str
    scale: float
    compute: Any


def paged_cache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    scale: float,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
) -> Cache:
    """Checks a cache and describes it.

    Raises:
        InputError: a head size that is no power of two from 32 on, or a quantised cache without its scales.
    """
    dim = k_cache.shape[3]
    if dim < 32 or dim & (dim - 1):
        raise InputError(f"head size: found {dim}; the attention kernels take powers of two from 32 on")
    assert k_cache.is_contiguous()
    assert v_cache.is_contiguous()
    scale *= _LOG2_E
    if k_cache.dtype not in (torch.int8, torch.float8_e4m3fn):
        return Cache(k_cache, v_cache, dim, "plain", scale, compute_dtype(q.dtype, q.device))
    if k_scale is None or v_scale is None:
        raise InputError(f"KV cache: {k_cache.dtype} needs the scales of its keys and values")
    assert k_scale.is_contiguous()
    assert v_scale.is_contiguous()
    int8 = k_cache.dtype == torch.int8
    keys, values = k_cache.view(torch.int16), v_cache.view(torch.int16)
    return Cache(keys, values, dim // 2, "int8" if int8 else "fp8", scale * (1 if int8 else FP8_BITS.value), tl.float16)


def compute_dtype(dtype: torch.dtype, device: torch.device) -> Any:
    """Operands of matrix products for queries of that dtype."""
    if dtype == torch.bfloat16 and device.type == "cuda":
        return tl.bfloat16
    return tl.float16 if dtype == torch.float16 else tl.float32


@functools.cache
def sm_version(device: torch.device) -> int:
    """Compute capability as 10 * major + minor; the interpreter runs what Hopper runs."""
    if device.type != "cuda":
        return 90
    major, minor = torch.cuda.get_device_capability(device)
    return int(10 * major + minor)


def slots_of_sequences(most: int) -> int:
    """Power of two up to which a kernel looks through a step's sequences: few values, as each is compiled by itself."""
    slots = 128
    while slots < most:
        slots *= 4
    return slots


def gather(cache: torch.Tensor, scales: torch.Tensor | None, blocks: torch.Tensor, length: int) -> torch.Tensor:
    """The first `length` tokens of a sequence that owns these blocks: `(K, length, D)` in float32, or float64 as the cache is."""

    def tokens(part: torch.Tensor) -> torch.Tensor:
        raw = part.view(torch.int8) if part.dtype == torch.float8_e4m3fn else part  # fp8 has no indexing
        chosen = raw[blocks.long()].view(part.dtype)
        wide = chosen.to(torch.float64 if part.dtype == torch.float64 else torch.float32)
        return wide.transpose(0, 1).flatten(1, 2)[:, :length]

    return tokens(cache) if scales is None else tokens(cache) * tokens(scales).unsqueeze(-1)


class Model(NamedTuple):
    """Attention of a model that the engine's launches are listed for: query and KV heads, and their size."""

    name: str
    heads: int
    kv_heads: int
    dim: int


MODELS = (
    Model("Llama-3.1-8B", 32, 8, 128),
    Model("Qwen3-0.6B", 16, 8, 128),
    Model("SmolLM2-135M", 9, 3, 64),
)


def example_cache(model: Model, dtype: torch.dtype) -> tuple[torch.dtype, torch.dtype | None, int, dict[str, Any]]:
    """How a cache of that dtype is passed for queries in bfloat16: pointer, pointer of scales, bytes of a token, and constexprs."""
    quantised = dtype in (torch.int8, torch.float8_e4m3fn)
    constexprs = {
        "KV_HEADS": model.kv_heads,
        "GROUP": model.heads // model.kv_heads,
        "DIM": model.dim,
        "BLOCK": 16,
        "WIDTH": model.dim // 2 if quantised else model.dim,
        "FORMAT": {torch.int8: "int8", torch.float8_e4m3fn: "fp8"}.get(dtype, "plain"),
        "COMPUTE": tl.float16 if quantised else tl.bfloat16,
        "ASSEMBLY": True,
    }
    token = 2 * model.kv_heads * (model.dim * dtype.itemsize + 4 * quantised)
    return torch.int16 if quantised else dtype, torch.float32 if quantised else None, token, constexprs
