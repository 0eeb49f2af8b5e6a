"""The kernels that torch does not have, or has slower, in numba; `gpu_backend.cpu.kernels` says what each of them does.

Kernels run on one thread. They are compiled by the first call of each kind of argument, which `CpuEngine` makes before anything
is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpu_backend.cpu.kernels import Array, Kernels
from gpu_backend.cpu.kv_cache import MOST
from gpu_backend.cpu.numba_elements import narrow, widen

LINEAR_ROWS = 64
"""Most rows that our own dense kernel takes: a step of 65 tokens runs on another one."""

# All but nnan and ninf: what is masked is never read, but a NaN that is computed must stay one.
_FAST = {"nsz", "arcp", "contract", "afn", "reassoc"}


def _jit(function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(fastmath=_FAST, error_model="numpy", boundscheck=False, cache=True)(function)
    except RuntimeError:  # no place to cache: compile at every start
        return numba.njit(fastmath=_FAST, error_model="numpy", boundscheck=False)(function)


@intrinsic
def _float_from_bits(typingctx: Any, x: Any) -> Any:
    return types.float32(types.int32), lambda c, builder, s, args: builder.bitcast(args[0], ir.FloatType())


@intrinsic
def _prefetch(typingctx: Any, array: Any, element: Any) -> Any:
    """Asks for the cache line of `array.data[element]` (flat index), which will be read once."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()] + [ir.IntType(32)] * 3)
        function = builder.module.declare_intrinsic("llvm.prefetch", [ir.IntType(8).as_pointer()], kind)
        builder.call(function, [pointer] + [ir.Constant(ir.IntType(32), n) for n in (0, 2, 1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), code


@_jit
def _exp(x: float) -> float:
    """e^x for x <= 88 to 2 ulp, vectorisable (libm's is one call an element)."""
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1.0)) * _float_from_bits((np.int32(n) + np.int32(127)) << np.int32(23))


@_jit
def _add_rms_norm(x: Array, residual: Array, weight: Array, eps: float, out: Array) -> None:
    tokens, hidden = x.shape
    for t in range(tokens):
        total = np.float32(0.0)
        for i in range(hidden):
            value = residual[t, i] + x[t, i]
            residual[t, i] = value
            total += value * value
        factor = np.float32(1.0) / np.sqrt(total / np.float32(hidden) + np.float32(eps))
        for i in range(hidden):
            out[t, i] = residual[t, i] * factor * weight[i]


@_jit
def _norm_rope(row: Array, weight: Array, eps: float, rope: Array) -> None:
    """One head, in place. An empty weight means no norm."""
    dim = row.shape[0]
    half = dim // 2
    if weight.shape[0] > 0:
        total = np.float32(0.0)
        for i in range(dim):
            total += row[i] * row[i]
        factor = np.float32(1.0) / np.sqrt(total / np.float32(dim) + np.float32(eps))
        for i in range(dim):
            row[i] = row[i] * factor * weight[i]
    for i in range(half):
        a, b, c, s = row[i], row[half + i], rope[i], rope[half + i]
        row[i] = a * c - b * s
        row[half + i] = b * c + a * s


@_jit
def _store(row: Array, most: float, slot: Array) -> float:
    """A head's keys or values in one byte each; the scale that makes numbers of them again."""
    top = np.float32(0.0)
    for i in range(row.shape[0]):
        top = max(top, abs(row[i]))
    scale = np.float32(1.0) if top == np.float32(0.0) else top / np.float32(most)
    factor = np.float32(1.0) / scale
    for i in range(row.shape[0]):
        unit = min(max(row[i] * factor, -np.float32(most)), np.float32(most))
        slot[i] = narrow(slot[i], unit)
    return scale


@_jit
def _qk_norm_rope_write(
    qkv: Array,
    q_weight: Array,
    k_weight: Array,
    eps: float,
    rope: Array,
    positions: Array,
    blocks: Array,
    offsets: Array,
    k_cache: Array,
    v_cache: Array,
    heads: int,
    k_scales: Array | None,
    v_scales: Array | None,
    most: float,
) -> None:
    kv_heads, dim = k_cache.shape[1], k_cache.shape[3]
    for t in range(positions.shape[0]):
        turn, block, offset = rope[positions[t]], blocks[t], offsets[t]
        for h in range(heads):
            _norm_rope(qkv[t, h * dim : (h + 1) * dim], q_weight, eps, turn)
        for h in range(kv_heads):
            at = (heads + h) * dim
            _norm_rope(qkv[t, at : at + dim], k_weight, eps, turn)
            also = at + kv_heads * dim
            keys, values = k_cache[block, h, offset], v_cache[block, h, offset]
            if k_scales is not None:  # decided when it is compiled, as everywhere below
                k_scales[block, h, offset] = _store(qkv[t, at : at + dim], most, keys)
                v_scales[block, h, offset] = _store(qkv[t, also : also + dim], most, values)
            else:
                for i in range(dim):
                    keys[i] = narrow(keys[i], qkv[t, at + i])
                    values[i] = narrow(values[i], qkv[t, also + i])


@_jit
def _decode_attention(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    tables: Array,
    starts: Array,
    lengths: Array,
    scale: float,
    out: Array,
    k_scales: Array | None,
    v_scales: Array | None,
) -> None:
    kv_heads, block, dim = k_cache.shape[1], k_cache.shape[2], k_cache.shape[3]
    heads = out.shape[1] // dim
    group = heads // kv_heads
    block_elements = kv_heads * block * dim
    line = 64 // k_cache.itemsize
    scores = np.empty(block, dtype=np.float32)
    top = np.empty(heads, dtype=np.float32)
    total = np.empty(heads, dtype=np.float32)
    for s in range(lengths.shape[0]):
        length, first = lengths[s], starts[s]
        blocks = (length + block - 1) // block
        for h in range(heads):
            top[h], total[h] = np.float32(-3e38), np.float32(0.0)
        for i in range(heads * dim):
            out[s, i] = np.float32(0.0)
        for b in range(blocks):
            used = min(block, length - b * block)
            at = tables[first + b]
            if b + 1 < blocks:  # the next block is anywhere in memory: ask for it while this one is worked on
                begin = tables[first + b + 1] * block_elements
                for e in range(begin, begin + block_elements, line):
                    _prefetch(k_cache, e)
                    _prefetch(v_cache, e)
            for kv in range(kv_heads):
                keys, values = k_cache[at, kv], v_cache[at, kv]
                for h in range(kv * group, (kv + 1) * group):
                    query, acc = q[s, h * dim : (h + 1) * dim], out[s, h * dim : (h + 1) * dim]
                    best = top[h]
                    # Four tokens a pass: the query is loaded, and the sums are stored, a fourth as often.
                    quads = used & ~3
                    for t in range(0, quads, 4):
                        k0, k1, k2, k3 = keys[t], keys[t + 1], keys[t + 2], keys[t + 3]
                        d0 = d1 = d2 = d3 = np.float32(0.0)
                        for i in range(dim):
                            x = query[i]
                            d0 += x * widen(k0[i])
                            d1 += x * widen(k1[i])
                            d2 += x * widen(k2[i])
                            d3 += x * widen(k3[i])
                        scores[t], scores[t + 1], scores[t + 2], scores[t + 3] = d0, d1, d2, d3
                    for t in range(quads, used):
                        dot = np.float32(0.0)
                        for i in range(dim):
                            dot += query[i] * widen(keys[t, i])
                        scores[t] = dot
                    if k_scales is not None:
                        for t in range(used):
                            scores[t] *= k_scales[at, kv, t]
                    for t in range(used):
                        scores[t] *= np.float32(scale)
                        best = max(best, scores[t])
                    shrink = _exp(top[h] - best)
                    top[h] = best
                    weight = total[h] * shrink
                    for t in range(used):
                        scores[t] = _exp(scores[t] - best)
                        weight += scores[t]
                    total[h] = weight
                    if v_scales is not None:
                        for t in range(used):
                            scores[t] *= v_scales[at, kv, t]
                    for i in range(dim):
                        acc[i] *= shrink
                    for t in range(0, quads, 4):
                        p0, p1, p2, p3 = scores[t], scores[t + 1], scores[t + 2], scores[t + 3]
                        v0, v1, v2, v3 = values[t], values[t + 1], values[t + 2], values[t + 3]
                        for i in range(dim):
                            acc[i] += p0 * widen(v0[i]) + p1 * widen(v1[i]) + p2 * widen(v2[i]) + p3 * widen(v3[i])
                    for t in range(quads, used):
                        p = scores[t]
                        for i in range(dim):
                            acc[i] += p * widen(values[t, i])
        if length > 0:
            for h in range(heads):
                factor = np.float32(1.0) / total[h]
                for i in range(h * dim, (h + 1) * dim):
                    out[s, i] *= factor


@_jit
def _linear(x: Array, weight: Array, bias: Array, out: Array) -> None:
    """Tiles of two rows by four outputs: eight sums stay in registers while four rows of weights stream by once."""
    rows, width = x.shape
    outputs = weight.shape[0]
    whole, even = outputs // 4 * 4, rows // 2 * 2
    for n in range(0, whole, 4):
        ahead = (n + 4) * width
        for e in range(ahead, min(ahead + 4 * width, outputs * width), 16):
            _prefetch(weight, e)
        for m in range(0, even, 2):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = np.float32(0.0)
            for k in range(width):
                a, b = x[m, k], x[m + 1, k]
                w0, w1, w2, w3 = weight[n, k], weight[n + 1, k], weight[n + 2, k], weight[n + 3, k]
                a0 += a * w0
                a1 += a * w1
                a2 += a * w2
                a3 += a * w3
                b0 += b * w0
                b1 += b * w1
                b2 += b * w2
                b3 += b * w3
            out[m, n], out[m, n + 1], out[m, n + 2], out[m, n + 3] = a0, a1, a2, a3
            out[m + 1, n], out[m + 1, n + 1], out[m + 1, n + 2], out[m + 1, n + 3] = b0, b1, b2, b3
        for m in range(even, rows):
            a0 = a1 = a2 = a3 = np.float32(0.0)
            for k in range(width):
                a = x[m, k]
                a0 += a * weight[n, k]
                a1 += a * weight[n + 1, k]
                a2 += a * weight[n + 2, k]
                a3 += a * weight[n + 3, k]
            out[m, n], out[m, n + 1], out[m, n + 2], out[m, n + 3] = a0, a1, a2, a3
    for n in range(whole, outputs):
        for m in range(rows):
            total = np.float32(0.0)
            for k in range(width):
                total += x[m, k] * weight[n, k]
            out[m, n] = total
    if bias.shape[0] > 0:
        for m in range(rows):
            for n in range(outputs):
                out[m, n] += bias[n]


@_jit
def _silu_mul(gate_up: Array, out: Array) -> None:
    tokens, width = out.shape
    for t in range(tokens):
        for i in range(width):
            gate = gate_up[t, i]
            out[t, i] = gate / (np.float32(1.0) + _exp(min(-gate, np.float32(87.0)))) * gate_up[t, width + i]


_BITS = {torch.bfloat16: torch.uint16, torch.float8_e4m3fn: torch.uint8}


def _view(x: torch.Tensor) -> Array:
    """numpy's view of a tensor; bfloat16 as uint16, fp8 as uint8."""
    return x.view(_BITS.get(x.dtype, x.dtype)).numpy()


def _scales(*scales: torch.Tensor | None) -> list[Array | None]:
    return [None if part is None else part.numpy() for part in scales]


_NONE = np.empty(0, dtype=np.float32)


def numba_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    out = torch.empty_like(residual)
    _add_rms_norm(x.numpy(), residual.numpy(), weight.numpy(), eps, out.numpy())
    return out


def numba_qk_norm_rope_write(
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
    weights = (_NONE if w is None else w.numpy() for w in (q_weight, k_weight))
    caches = (_view(k_cache), _view(v_cache))
    kept = (*_scales(k_scales, v_scales), MOST.get(k_cache.dtype, 0.0))
    _qk_norm_rope_write(qkv.numpy(), *weights, eps, rope.numpy(), positions, blocks, offsets, *caches, heads, *kept)


def numba_decode_attention(
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
    scales = _scales(k_scales, v_scales)
    _decode_attention(q.numpy(), _view(k_cache), _view(v_cache), tables, starts, lengths, scale, out.numpy(), *scales)


def numba_silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    out = torch.empty(gate_up.shape[0], gate_up.shape[1] // 2)
    _silu_mul(gate_up.numpy(), out.numpy())
    return out


def numba_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`F.linear` in float32. Up to 64 rows our kernel: on AVX2, 1 / 8 / 64 rows through the tiny model's 41.5M weights took
    16 / 31 / 90 ms against 22 / 53 / 120 of torch's, which is even at 256."""
    if len(x) > LINEAR_ROWS:
        return torch.nn.functional.linear(x, weight, bias)
    out = torch.empty(len(x), len(weight))
    _linear(x.numpy(), weight.numpy(), _NONE if bias is None else bias.numpy(), out.numpy())
    return out


NUMBA = Kernels(
    "numba",
    numba_add_rms_norm,
    numba_qk_norm_rope_write,
    numba_decode_attention,
    numba_silu_mul,
    numba_linear,
)
