"""Paged attention of ragged chunks equals dense causal attention in float64, with and without a cached prefix."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpu_backend.checks.poison import is_poison
from gpu_backend.kernels.decode_attention import decode_attention
from gpu_backend.kernels.prefill_attention import FEW_QUERIES, prefill_attention, prefill_attention_reference
from tests.gpu_backend.kernels.conftest import Guards
from tests.gpu_backend.kernels.paged_memory import PagedMemory, queries

FINE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Differences allowed by dtype of the queries."""
SCALED = {torch.int8: 2e-3, torch.float8_e4m3fn: 2e-3}
"""The same for quantised caches, whose products are computed in float16."""

RUN = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failure is not shrunk: an example takes seconds to interpret."""

Chunks = list[tuple[int, int]]
"""Cached tokens and new ones, of each sequence."""


def check(
    chunks: Chunks, block: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype, cache: torch.dtype | None = None,
    most: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Runs the kernel in poisoned memory, with rows to spare, and compares it with dense attention."""
    counts = [new for _, new in chunks]
    starts = [0, *accumulate(counts)]
    with Guards() as guards:
        memory = PagedMemory(guards, [cached + new for cached, new in chunks], block, kv_heads, dim, cache or dtype)
        q = queries(guards, starts[-1] + 3, heads, kv_heads, dim, dtype)
        out = guards.empty((starts[-1] + 3, heads * dim), dtype)
        where = (memory.tables, guards.place(torch.tensor(starts, dtype=torch.int32)), memory.seq_lens, dim**-0.5)
        most = most or max(counts)
        assert prefill_attention(q, *memory.caches, *where, out, heads, most, *memory.scales) is out
    assert is_poison(out[starts[-1] :]).all(), "wrote behind the last chunk"
    wanted = [memory.expected(q[starts[s] : starts[s + 1]], heads, s) for s in range(len(chunks))]
    allowed = FINE[dtype] if cache is None else SCALED[cache]
    torch.testing.assert_close(out[: starts[-1]].double(), torch.cat(wanted), rtol=allowed, atol=allowed)
    return out[: starts[-1]]


@settings(max_examples=6, deadline=None, phases=RUN)
@given(
    chunks=st.lists(st.tuples(st.sampled_from([0, 1, 15, 64, 100]), st.integers(0, 70)), min_size=1, max_size=3),
    longest=st.integers(FEW_QUERIES + 1, 70),
    block=st.sampled_from([8, 16, 32, 64, 128]),
    heads=st.sampled_from([(1, 1), (4, 1), (8, 1), (6, 2), (2, 2)]),
    dim=st.sampled_from([64, 128]),
    dtype=st.sampled_from(sorted(FINE, key=str)),
    cache=st.sampled_from([None, None, torch.int8, torch.float8_e4m3fn]),
)
def test_ragged_chunks_equal_dense_attention(
    chunks: Chunks,
    longest: int,
    block: int,
    heads: tuple[int, int],
    dim: int,
    dtype: torch.dtype,
    cache: torch.dtype | None,
) -> None:
    if cache is not None and dtype == torch.bfloat16:
        dtype = torch.float16  # the interpreter truncates a bfloat16 result, which says nothing about the cache
    check([*chunks, (3, longest)], block, *heads, dim, dtype, cache)


@settings(max_examples=4, deadline=None, phases=RUN)
@given(
    chunks=st.lists(st.tuples(st.sampled_from([0, 1, 15, 64, 300]), st.integers(1, 5)), min_size=1, max_size=2),
    block=st.sampled_from([8, 16, 32]),
    heads=st.sampled_from([(1, 1), (4, 1), (8, 1), (3, 1)]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    cache=st.sampled_from([None, None, torch.int8, torch.float8_e4m3fn]),
)
def test_draft_tokens_equal_dense_attention(
    chunks: Chunks, block: int, heads: tuple[int, int], dtype: torch.dtype, cache: torch.dtype | None
) -> None:
    check(chunks, block, *heads, 64, dtype, cache)


def test_draft_tokens_take_several_tiles_where_a_group_is_large() -> None:
    check([(20, FEW_QUERIES), (0, 2)], 16, 8, 1, 64, torch.float32)


def test_draft_tokens_that_see_nothing_of_a_split_get_nothing_from_it() -> None:
    """The last split begins within the drafts: the first of them see no key of it."""
    check([(254, 5)], 16, 2, 1, 64, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("new", [31, 32, 33, 128, 129])
def test_chunks_that_end_at_a_border_of_a_tile(new: int, dtype: torch.dtype) -> None:
    check([(0, new), (new, 1)], 16, 4 if new < 40 else 1, 1, 64, dtype)


@pytest.mark.parametrize("cache", [None, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("block", [16, 128])
def test_case_16_garbage_behind_the_end_is_never_read(block: int, cache: torch.dtype | None) -> None:
    ends = sorted({1, block - 1, block, block + 1, 64})
    check([(0, end) for end in ends], block, 1, 1, 64, torch.float32, cache)


def test_a_prompt_in_two_chunks_equals_the_prompt_at_once() -> None:
    """The second chunk begins within a block and a tile."""
    with Guards() as guards:
        memory = PagedMemory(guards, [90], 16, 2, 64, torch.float32)
        q = queries(guards, 90, 4, 2, 64, torch.float32)

        def attend(first: int, last: int) -> torch.Tensor:
            out = guards.empty((last - first, 256), torch.float32)
            starts, ends = (torch.tensor(n, dtype=torch.int32) for n in ([0, last - first], [last]))
            return prefill_attention(
                q[first:last], *memory.caches, memory.tables, starts, ends, 0.125, out, 4, last - first
            )

        whole, parts = attend(0, 90), [attend(0, 37), attend(37, 90)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-6)


def test_one_draft_row_equals_decode_to_the_last_bit() -> None:
    with Guards() as guards:
        memory = PagedMemory(guards, [300, 17], 16, 1, 64, torch.float32)
        q = queries(guards, 2, 4, 1, 64, torch.float32)
        verified, decoded = (guards.empty((2, 256), torch.float32) for _ in range(2))
        starts = torch.tensor([0, 1, 2], dtype=torch.int32)
        prefill_attention(q, *memory.caches, memory.tables, starts, memory.seq_lens, 0.125, verified, 4, 1)
        decode_attention(q, *memory.caches, memory.tables, memory.seq_lens, 0.125, decoded, 4)
    assert torch.equal(verified, decoded)


def test_no_chunk_at_all_writes_nothing() -> None:
    for most in (4, 40):
        assert check([(0, 0), (0, 0)], 16, 2, 1, 64, torch.float32, most=most).shape == (0, 128)


@pytest.mark.parametrize("cache", [torch.float64, torch.int8, torch.float8_e4m3fn])
def test_the_reference_is_dense_attention(cache: torch.dtype) -> None:
    with Guards() as guards:
        memory = PagedMemory(guards, [40, 7, 65], 16, 2, 64, cache)
        q = queries(guards, 10, 6, 2, 64, torch.float64)
        out = guards.empty((10, 384), torch.float64)
        starts = torch.tensor([0, 4, 8, 10], dtype=torch.int32)
        where = (memory.tables, starts, memory.seq_lens, 0.125)
        prefill_attention_reference(q, *memory.caches, *where, out, 6, 4, *memory.scales)
    wanted = torch.cat([memory.expected(q[starts[s] : starts[s + 1]], 6, s) for s in range(3)])
    precise = cache == torch.float64
    torch.testing.assert_close(out, wanted, rtol=1e-12 if precise else 1e-5, atol=1e-12 if precise else 1e-5)
