"""Attention of ragged chunks over the paged KV: a prompt's part after a prefix whose KV exists, or draft tokens to verify.

Query heads that share a KV head and neighbouring tokens lie in one tile of 128 rows, heads innermost, so that chunks of any length and
groups of any size fill it, and a matrix product is wide enough for a warp group of Hopper. Keys that every row of a tile sees, the
cached prefix and the chunk's part before the tile, are taken without a mask; only the last few tiles of keys need one.

Few tokens over a long context would leave most of a chip idle. Up to 17 of them, as verification has, take the split-KV kernels of
`decode_attention`: a switch that shows as a step in latency, and that the largest chunk of a step decides.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
from gpu_backend.kernels.decode_attention import split_attention
from gpu_backend.kernels.paged import (
    MODELS,
    Model,
    attend_tile,
    attended,
    example_cache,
    gather,
    load_queries,
    paged_cache,
    slots_of_sequences,
    sm_version,
)

FEW_QUERIES = 17

_COUNTS = ("sequences", "table_stride")
_SLICES = ("block_tables", "query_starts", "seq_lens")


@triton.jit(do_not_specialize=_COUNTS, do_not_specialize_on_alignment=_SLICES)
def _chunks(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, query_starts, seq_lens, out,
    scale, q_stride, out_stride, table_stride, sequences,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, SEQUENCES: tl.constexpr,
    WIDTH: tl.constexpr, FORMAT: tl.constexpr, COMPUTE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    # Tiles that see most keys begin first.
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    # Sequence s owns the tiles from starts * GROUP // ROWS + s on: no fewer than it needs, whatever the lengths are.
    every = tl.arange(0, SEQUENCES)
    starts = tl.load(query_starts + every, mask=every < sequences, other=0)
    own = (starts * GROUP // ROWS + every <= tile) & (every < sequences)
    s = tl.sum(own.to(tl.int32)) - 1
    first = tl.load(query_starts + s)
    queries = tl.load(query_starts + s + 1) - first
    length = tl.load(seq_lens + s)
    begin = (tile - first * GROUP // ROWS - s) * ROWS
    if begin >= queries * GROUP:
        return
    row = begin + tl.arange(0, ROWS)
    query = row // GROUP
    live = query < queries
    at_row = (first + query).to(tl.int64)
    heads = head * GROUP + row % GROUP
    places = at_row * q_stride + heads * DIM
    q_even, q_odd = load_queries(q + places[:, None], live, DIM, FORMAT, COMPUTE)
    acc_even = tl.zeros([ROWS, WIDTH], tl.float32)
    acc_odd = acc_even
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    visible = length - queries + query + 1
    end = tl.minimum(length - queries + (begin + ROWS - 1) // GROUP + 1, length)
    whole = (length - queries + begin // GROUP + 1) // TILE * TILE
    table = block_tables + s.to(tl.int64) * table_stride
    keys = tl.arange(0, TILE)
    # Block ids are read a tile ahead, so that the loads of a tile have their addresses when they are due.
    blocks = tl.load(table + keys // BLOCK, mask=keys < end, other=0)
    for _ in range(0, whole, TILE):
        slots = (blocks.to(tl.int64) * KV_HEADS + head) * BLOCK + keys % BLOCK
        keys += TILE
        blocks = tl.load(table + keys // BLOCK, mask=keys < end, other=0)
        acc_even, acc_odd, top, total = attend_tile(
            q_even, q_odd, acc_even, acc_odd, top, total, k_cache, v_cache, k_scale, v_scale, slots, None, None, scale,
            WIDTH, FORMAT, ASSEMBLY, MASK=False, LAZY=False,
        )  # fmt: skip
    # One or two turns: nothing to gain from a pipeline, and its buffers would be there beside those of the loop above.
    for _ in tl.range(whole, end, TILE, num_stages=1):
        slots = (blocks.to(tl.int64) * KV_HEADS + head) * BLOCK + keys % BLOCK
        inside = keys < end
        seen = keys[None, :] < visible[:, None]
        keys += TILE
        blocks = tl.load(table + keys // BLOCK, mask=keys < end, other=0)
        acc_even, acc_odd, top, total = attend_tile(
            q_even, q_odd, acc_even, acc_odd, top, total, k_cache, v_cache, k_scale, v_scale, slots, inside, seen, scale,
            WIDTH, FORMAT, ASSEMBLY, MASK=True, LAZY=False,
        )  # fmt: skip
    result = attended(acc_even, acc_odd, total, FORMAT)
    places = at_row * out_stride + heads * DIM
    tl.store(out + places[:, None] + tl.arange(0, DIM)[None, :], result.to(out.dtype.element_ty), mask=live[:, None])


def _config(dim: int, itemsize: int, capability: int) -> tuple[int, int, int, int]:
    """Query rows and keys of a tile, warps and pipeline stages, for heads of `dim` numbers of `itemsize` bytes.

    Hopper's products take their operands from shared memory: 128 rows by 128 keys just fit the registers of 8 warps; where operands
    are made from bytes, 64 keys do. Ampere holds the operands in registers as well, and takes fewer keys. In float32 each operand
    is there three times.
    """
    if itemsize == 4:
        return 16, 32, 4, 2
    if capability >= 90:
        return (128, 64, 8, 3) if itemsize == 1 or dim > 128 else (128, 128, 8, 2)
    return 128, 32 if dim > 64 else 64, 8, 3


def prefill_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    num_heads: int,
    max_queries: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    max_seq_len: int | None = None,
) -> torch.Tensor:
    """Causal attention of a chunk of tokens of each sequence over its paged KV, into `out`, which is returned.

    All KV comes from the cache, the chunk's own as well, which has been written before. Token i of a chunk of n sees the keys
    0 .. seq_len - n + i of its sequence.

    Args:
        q: `(T, at least N * D)`, query heads first; rows may be any distance apart.
        k_cache, v_cache: `(B, K, bs, D)` contiguous, see `gpu_backend.kernels.paged`.
        block_tables: `(S, max_blocks)` int32, only the entries of existing tokens are read.
        query_starts: `(S + 1,)` int32, first row of each sequence, and at the end their number; rows from there on are left alone.
        seq_lens: `(S,)` int32, tokens whose KV exists, the chunk's included.
        scale: of the scores.
        out: `(T, N * D)`, rows may be any distance apart.
        num_heads: N.
        max_queries: no chunk is longer.
        k_scale, v_scale: `(B, K, bs)` float32, of a quantised cache. Its products are computed in float16.
        max_seq_len: as of `decode_attention`, for up to FEW_QUERIES queries.

    Raises:
        InputError: see `paged_cache`.
    """
    if max_queries <= FEW_QUERIES:
        return split_attention(
            q, k_cache, v_cache, block_tables, query_starts, seq_lens, scale, out, num_heads, max_queries, k_scale, v_scale,
            max_seq_len,
        )  # fmt: skip
    sequences = len(seq_lens)
    if not sequences or not len(q):
        return out
    kv_heads, block, dim = k_cache.shape[1:]
    cache = paged_cache(q, k_cache, v_cache, scale, k_scale, v_scale)
    group = num_heads // kv_heads
    rows, tile, warps, stages = _config(dim, k_cache.element_size(), sm_version(q.device))
    assert q.stride(1) == out.stride(1) == block_tables.stride(1) == 1
    _chunks[(kv_heads, len(q) * group // rows + sequences)](
        q, cache.keys, cache.values, k_scale, v_scale, block_tables, query_starts, seq_lens, out,
        cache.scale, q.stride(0), out.stride(0), block_tables.stride(0), sequences,
        KV_HEADS=kv_heads, GROUP=group, DIM=dim, BLOCK=block,
        ROWS=rows, TILE=tile, SEQUENCES=slots_of_sequences(sequences),
        WIDTH=cache.width, FORMAT=cache.format, COMPUTE=cache.compute, ASSEMBLY=q.device.type == "cuda",
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def prefill_attention_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    num_heads: int,
    max_queries: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    max_seq_len: int | None = None,
) -> torch.Tensor:
    """What `prefill_attention` computes, one sequence at a time; float64 where its inputs are."""
    kv_heads, block, dim = k_cache.shape[1:]
    starts = query_starts.tolist()
    for s, length in enumerate(seq_lens.tolist()):
        first, n = starts[s], starts[s + 1] - starts[s]
        blocks = block_tables[s, : -(-length // block)]
        keys, values = gather(k_cache, k_scale, blocks, length), gather(v_cache, v_scale, blocks, length)
        queries = q[first : first + n, : num_heads * dim].to(keys.dtype)
        queries = queries.view(n, kv_heads, num_heads // kv_heads, dim).permute(1, 2, 0, 3)
        scores = queries @ keys.unsqueeze(1).transpose(2, 3) * scale
        last = torch.arange(length - n, length, device=q.device).unsqueeze(1)
        hidden = torch.arange(length, device=q.device) > last
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        result = (weights @ values.unsqueeze(1)).permute(2, 0, 1, 3)
        out[first : first + n] = result.reshape(n, num_heads * dim).to(out.dtype)
    return out


def _launch(model: Model, dtype: torch.dtype, capability: int, context: int, queries: int) -> Specialisation:
    """One chunk after a cached prefix."""
    kv, scales, token, constexprs = example_cache(model, dtype)
    rows, tile, warps, stages = _config(model.dim, dtype.itemsize, capability)
    width, bf16, i32 = model.heads * model.dim, torch.bfloat16, torch.int32
    q_stride = width + 2 * model.kv_heads * model.dim
    return Specialisation(
        name=f"{model.name}, {str(dtype)[6:]} cache, {queries} tokens after {context}",
        kernel=_chunks,
        args=(
            bf16, kv, kv, scales, scales, i32, i32, i32, bf16,
            model.dim**-0.5, q_stride, width, 512, 3,
        ),
        constexprs=constexprs | {"ROWS": rows, "TILE": tile, "SEQUENCES": slots_of_sequences(3)},
        num_warps=warps,
        num_stages=stages,
        flops=4.0 * width * queries * (context + (queries + 1) / 2),
        bytes=float((context + queries) * token + 2 * 2 * queries * width),
        expects={"wgmma", "cp.async", "st.128"} | ({"ld.128"} if scales is None else set()),
        capabilities=(capability,),
    )  # fmt: skip


SPECIALISATIONS = [
    _launch(model, dtype, capability, 2048, 2048)
    for capability in (80, 90)
    for model, dtype in (
        *((model, torch.bfloat16) for model in MODELS),
        (MODELS[0], torch.int8),
        (MODELS[0], torch.float8_e4m3fn),
    )
]
