"""Attention of few queries a sequence over its paged KV: split-KV, so that one long sequence occupies a whole chip.

Each sequence's keys are cut into splits of a fixed number of tokens; a program attends to one split of one KV head, with all query heads
that share it in one tile, and a second kernel joins the splits. The size of a split depends on the window alone, and a tile's on the
head size: what a row yields does not depend on the rest of its batch, down to the last bit.

Splits that no sequence has cost nothing: programs count the existing ones from the lengths and take turns at them. The number of
programs depends on the chip, so that a captured graph serves every length up to the window.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from gpu_backend.kernels.compiled import Specialisation
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
)

MOST_SPLITS = 64
_SMALLEST_SPLIT = 256

_COUNTS = ("sequences", "table_stride", "max_splits")
_SLICES = ("block_tables", "query_starts", "seq_lens")


# Counts vary from step to step, and arrays may begin at any sequence: neither is worth a kernel of its own.
@triton.jit(do_not_specialize=_COUNTS, do_not_specialize_on_alignment=_SLICES)
def _splits(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, query_starts, seq_lens, parts, part_sums, out,
    scale, q_stride, out_stride, table_stride, sequences, max_splits,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr,
    ROWS: tl.constexpr, ROW_TILES: tl.constexpr, TILE: tl.constexpr, SEQUENCES: tl.constexpr, CHUNKS: tl.constexpr,
    WIDTH: tl.constexpr, FORMAT: tl.constexpr, COMPUTE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    LAZY: tl.constexpr = ROWS == 16
    every = tl.arange(0, SEQUENCES)
    splits = (tl.load(seq_lens + every, mask=every < sequences, other=0) + SPLIT - 1) // SPLIT
    ends = tl.cumsum(splits)
    dims = tl.arange(0, DIM)[None, :]
    # Heads are innermost: neighbouring programs read neighbouring memory of the same blocks.
    for item in range(tl.program_id(0), tl.sum(splits) * KV_HEADS * ROW_TILES, tl.num_programs(0)):
        row = item % ROW_TILES * ROWS + tl.arange(0, ROWS)
        head = item // ROW_TILES % KV_HEADS
        unit = item // (ROW_TILES * KV_HEADS)
        s = tl.sum((ends <= unit).to(tl.int32))
        split = unit - tl.max(tl.where(ends <= unit, ends, 0))
        length = tl.load(seq_lens + s)
        if CHUNKS:
            first = tl.load(query_starts + s)
            queries = tl.load(query_starts + s + 1) - first
        else:
            first = s
            queries = 1
        query = row // GROUP
        live = query < queries
        at_row = (first + query).to(tl.int64)
        heads = head * GROUP + row % GROUP
        places = at_row * q_stride + heads * DIM
        q_even, q_odd = load_queries(q + places[:, None], live, DIM, FORMAT, COMPUTE)
        acc_even = tl.zeros([ROWS, WIDTH], tl.float32)
        acc_odd = acc_even
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS, TILE] if LAZY else [ROWS], tl.float32)
        begin = split * SPLIT
        end = tl.minimum(begin + SPLIT, length)
        visible = length - queries + query + 1
        table = block_tables + s.to(tl.int64) * table_stride
        keys = begin + tl.arange(0, TILE)
        # Block ids are read a tile ahead, so that the loads of a tile have their addresses when they are due.
        blocks = tl.load(table + keys // BLOCK, mask=keys < end, other=0)
        for _ in range(begin, end, TILE):
            slots = (blocks.to(tl.int64) * KV_HEADS + head) * BLOCK + keys % BLOCK
            inside = keys < end
            seen = keys[None, :] < visible[:, None] if CHUNKS else inside[None, :]
            keys += TILE
            blocks = tl.load(table + keys // BLOCK, mask=keys < end, other=0)
            acc_even, acc_odd, top, total = attend_tile(
                q_even, q_odd, acc_even, acc_odd, top, total, k_cache, v_cache, k_scale, v_scale, slots, inside, seen, scale,
                WIDTH, FORMAT, ASSEMBLY, MASK=True, LAZY=LAZY,
            )  # fmt: skip
        sums = tl.sum(total, 1) if LAZY else total
        result = attended(acc_even, acc_odd, sums, FORMAT)
        if length <= SPLIT:
            places = at_row * out_stride + heads * DIM
            tl.store(out + places[:, None] + dims, result.to(out.dtype.element_ty), mask=live[:, None])
        else:
            places = (at_row * (KV_HEADS * GROUP) + heads) * max_splits + split
            tl.store(parts + places[:, None] * DIM + dims, result, mask=live[:, None])
            # The first drafts of a sequence may see no key of its last split: no weight at all.
            tl.store(part_sums + places, top + tl.log2(tl.where(sums == 0.0, 1.0, sums)), mask=live)


@triton.jit(do_not_specialize=("max_splits",), do_not_specialize_on_alignment=_SLICES)
def _join(
    query_starts, seq_lens, parts, part_sums, out, out_stride, max_splits,
    HEADS: tl.constexpr, DIM: tl.constexpr, SPLIT: tl.constexpr, SLOTS: tl.constexpr, STEP: tl.constexpr,
    CHUNKS: tl.constexpr,
):  # fmt: skip
    """Weighs the splits of one row and head by their sums. Splits beyond a sequence's last are not read."""
    head = tl.program_id(0)
    s = tl.program_id(2)
    length = tl.load(seq_lens + s)
    splits = (length + SPLIT - 1) // SPLIT
    row = tl.program_id(1)
    live = splits != 1  # the only split has been written as the result
    if CHUNKS:
        first = tl.load(query_starts + s)
        live = live & (row < tl.load(query_starts + s + 1) - first)
        row += first
    else:
        row += s
    if live:
        place = (row.to(tl.int64) * HEADS + head) * max_splits
        every = tl.arange(0, SLOTS)
        sums = tl.load(part_sums + place + every, mask=every < splits, other=float("-inf"))
        # A padding row has no splits: no largest sum, and no total to divide by.
        top = tl.where(splits == 0, 0.0, tl.max(sums, 0))
        total = tl.sum(tl.exp2(sums - top), 0)
        dims = tl.arange(0, DIM)
        acc = tl.zeros([DIM], tl.float32)
        for begin in range(0, splits, STEP):
            some = begin + tl.arange(0, STEP)
            there = some < splits
            weight = tl.exp2(tl.load(part_sums + place + some, mask=there, other=float("-inf")) - top)
            part = tl.load(parts + (place + some)[:, None] * DIM + dims[None, :], mask=there[:, None], other=0.0)
            acc += tl.sum(part * weight[:, None], 0)
        result = acc / tl.where(splits == 0, 1.0, total)
        tl.store(out + row.to(tl.int64) * out_stride + head * DIM + dims, result.to(out.dtype.element_ty))


def split_size(max_seq_len: int) -> int:
    """Tokens of a split, for a window: at most MOST_SPLITS splits, each of them a power of two and worth a program's start."""
    return max(_SMALLEST_SPLIT, triton.next_power_of_2(triton.cdiv(max_seq_len, MOST_SPLITS)))


def scratch_size(rows: int, num_heads: int, head_dim: int, max_seq_len: int) -> int:
    """float32 numbers that the splits of that many rows need: a result and a sum for each of their heads and splits."""
    return rows * num_heads * triton.cdiv(max_seq_len, split_size(max_seq_len)) * (head_dim + 1)


def _rows(most: int, itemsize: int) -> tuple[int, int]:
    """Rows of a tile, 16 at least for a matrix product, and tiles for up to `most` query tokens times heads of a group."""
    rows = min(16 if itemsize == 4 else 64, max(16, triton.next_power_of_2(most)))
    return rows, triton.cdiv(most, rows)


def _config(dim: int, itemsize: int, rows: int) -> tuple[int, int, int]:
    """Keys of a tile, warps and pipeline stages, for heads of `dim` numbers of `itemsize` bytes and tiles of so many query rows.

    Keys of a tile have 16 KiB where registers allow it: with their values and two tiles under way, two or three programs share an
    SM. The more rows, the fewer keys fit the registers.
    """
    most = 32 if rows == 64 else 128 if rows == 16 and itemsize == 1 else 64
    return max(32, min(most, 16384 // (dim * itemsize))), 4, 3


@functools.cache
def _programs(device: torch.device) -> int:
    """Programs that take turns at the splits: 8 an SM, more than are resident, so that early ones make room for late ones."""
    if device.type != "cuda":
        return 7
    return 8 * int(torch.cuda.get_device_properties(device).multi_processor_count)


def _scratch(size: int, device: torch.device) -> torch.Tensor:
    """Memory of splits, float32 `(size,)`; whatever is in it is never read. The allocator hands the same out layer after layer."""
    return torch.empty(size, dtype=torch.float32, device=device)


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    num_heads: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    max_seq_len: int | None = None,
) -> torch.Tensor:
    """Attention of one query token a sequence over its paged KV, into `out`, which is returned.

    Args:
        q: `(S, at least N * D)`, query heads first; rows may be any distance apart.
        k_cache, v_cache: `(B, K, bs, D)` contiguous, see `gpu_backend.kernels.paged`.
        block_tables: `(S, max_blocks)` int32, only the entries of existing tokens are read.
        seq_lens: `(S,)` int32, tokens whose KV exists, at most `max_seq_len`. 0 marks padding and yields zeros.
        scale: of the scores.
        out: `(S, N * D)`, rows may be any distance apart.
        num_heads: N.
        k_scale, v_scale: `(B, K, bs)` float32, of a quantised cache. Its products are computed in float16.
        max_seq_len: the window, which sets the size of a split; the tables' width without it. It has to be the same in every step, as
            results are equal to the last bit only for equal splits.

    Raises:
        InputError: see `paged_cache`.
    """
    return split_attention(
        q, k_cache, v_cache, block_tables, None, seq_lens, scale, out, num_heads, 1, k_scale, v_scale, max_seq_len
    )  # fmt: skip


def split_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_starts: torch.Tensor | None,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    num_heads: int,
    max_queries: int,
    k_scale: torch.Tensor | None,
    v_scale: torch.Tensor | None,
    max_seq_len: int | None,
) -> torch.Tensor:
    """`decode_attention` for up to `max_queries` tokens a sequence, as `prefill_attention` takes them; without `query_starts`, one."""
    sequences, window = len(seq_lens), max_seq_len or block_tables.shape[1] * k_cache.shape[2]
    if not sequences or not len(q):
        return out
    kv_heads, block, dim = k_cache.shape[1:]
    cache = paged_cache(q, k_cache, v_cache, scale, k_scale, v_scale)
    split, group = split_size(window), num_heads // kv_heads
    splits = triton.cdiv(window, split)
    rows, row_tiles = _rows(max_queries * group, k_cache.element_size())
    size = scratch_size(len(q), num_heads, dim, window)
    scratch = _scratch(size, q.device)
    parts, sums = scratch[: size // (dim + 1) * dim], scratch[size // (dim + 1) * dim :]
    tile, warps, stages = _config(dim, k_cache.element_size(), rows)
    assert q.stride(1) == out.stride(1) == block_tables.stride(1) == 1
    _splits[(min(sequences * splits * kv_heads * row_tiles, _programs(q.device)),)](
        q, cache.keys, cache.values, k_scale, v_scale, block_tables, query_starts, seq_lens, parts, sums, out,
        cache.scale, q.stride(0), out.stride(0), block_tables.stride(0), sequences, splits,
        KV_HEADS=kv_heads, GROUP=group, DIM=dim, BLOCK=block, SPLIT=split,
        ROWS=rows, ROW_TILES=row_tiles, TILE=tile, SEQUENCES=slots_of_sequences(sequences), CHUNKS=query_starts is not None,
        WIDTH=cache.width, FORMAT=cache.format, COMPUTE=cache.compute, ASSEMBLY=q.device.type == "cuda",
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    _join[(num_heads, max_queries, sequences)](
        query_starts, seq_lens, parts, sums, out, out.stride(0), splits,
        HEADS=num_heads, DIM=dim, SPLIT=split, SLOTS=MOST_SPLITS, STEP=16, CHUNKS=query_starts is not None, num_warps=4,
    )  # fmt: skip
    return out


def decode_attention_reference(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float,
    out: torch.Tensor,
    num_heads: int,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    max_seq_len: int | None = None,
) -> torch.Tensor:
    """What `decode_attention` computes, one sequence at a time; float64 where its inputs are."""
    kv_heads, block, dim = k_cache.shape[1:]
    for s, length in enumerate(seq_lens.tolist()):
        blocks = block_tables[s, : -(-length // block)]
        keys, values = gather(k_cache, k_scale, blocks, length), gather(v_cache, v_scale, blocks, length)
        queries = q[s, : num_heads * dim].to(keys.dtype).view(kv_heads, -1, dim)
        weights = torch.softmax(queries @ keys.transpose(1, 2) * scale, dim=-1)
        out[s] = (weights @ values).flatten().to(out.dtype)
    return out


def _launches(model: Model, dtype: torch.dtype, queries: int, sequences: int, length: int) -> Iterator[Specialisation]:
    """Both kernels for so many query tokens a sequence, in a window of twice the length."""
    kv, scales, token, constexprs = example_cache(model, dtype)
    split, bf16, f32, i32 = split_size(2 * length), torch.bfloat16, torch.float32, torch.int32
    rows, row_tiles = _rows(queries * (model.heads // model.kv_heads), dtype.itemsize)
    tile, warps, stages = _config(model.dim, dtype.itemsize, rows)
    splits, starts = 2 * length // split, i32 if queries > 1 else None
    width, q_stride = model.heads * model.dim, (model.heads + 2 * model.kv_heads) * model.dim
    what = "decode" if queries == 1 else f"{queries} queries"
    name = f"{model.name}, {what}, {str(dtype)[6:]} cache, {sequences} x {length}"
    yield Specialisation(
        name=name,
        kernel=_splits,
        args=(
            bf16, kv, kv, scales, scales, i32, starts, i32, f32, f32, bf16,
            model.dim**-0.5, q_stride, width, 2 * length // 16, sequences, splits,
        ),
        constexprs=constexprs | {
            "SPLIT": split, "ROWS": rows, "ROW_TILES": row_tiles, "TILE": tile,
            "SEQUENCES": slots_of_sequences(sequences), "CHUNKS": queries > 1,
        },
        num_warps=warps,
        num_stages=stages,
        flops=4.0 * sequences * queries * length * width,
        bytes=float(sequences * length * token),
        # Queries are read in pairs of even and odd dimensions beside a quantised cache, in 16 bytes beside another.
        expects={"cp.async", "st.128"} | ({"ld.128"} if scales is None else set()),
    )  # fmt: skip
    if dtype == bf16 and queries == 1:
        parts = sequences * queries * model.heads * (length // split)
        yield Specialisation(
            name=f"{name}: join",
            kernel=_join,
            args=(None, i32, f32, f32, bf16, width, splits),
            constexprs={
                "HEADS": model.heads, "DIM": model.dim, "SPLIT": split, "SLOTS": MOST_SPLITS, "STEP": 16, "CHUNKS": queries > 1,
            },
            bytes=parts * (model.dim + 1) * 4.0 + sequences * queries * width * 2.0,
            expects={"ld.128"},
        )  # fmt: skip


SPECIALISATIONS = [
    launch
    for model, dtype, queries in (
        *((model, torch.bfloat16, 1) for model in MODELS),
        (MODELS[0], torch.int8, 1),
        (MODELS[0], torch.float8_e4m3fn, 1),
        (MODELS[0], torch.bfloat16, 5),
        (MODELS[0], torch.bfloat16, 9),
        (MODELS[0], torch.int8, 9),
    )
    for launch in _launches(model, dtype, queries, 16, 4096)
]
