"""Paged decode attention equals dense attention in float64, whatever lies behind the end of a sequence and however it is split."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_backend.checks.poison import is_poison
from gpu_backend.kernels import decode_attention as module
from gpu_backend.kernels.decode_attention import decode_attention, decode_attention_reference, split_size
from scenarios.errors import InputError
from tests.gpu_backend.kernels.conftest import Guards
from tests.gpu_backend.kernels.paged_memory import PagedMemory, queries

FINE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
"""Differences allowed by dtype of the queries."""
SCALED = {torch.int8: 2e-3, torch.float8_e4m3fn: 2e-3}
"""The same for quantised caches, whose products are computed in float16."""


def check(
    lengths: list[int], block: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype, cache: torch.dtype | None = None,
    max_seq_len: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Runs the kernel in poisoned memory and compares it with dense attention."""
    with Guards() as guards:
        memory = PagedMemory(guards, lengths, block, kv_heads, dim, cache or dtype)
        q = queries(guards, len(lengths), heads, kv_heads, dim, dtype)
        out = guards.empty((len(lengths) + 1, heads * dim), dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                f"{decode_attention.__module__}._scratch", lambda size, _: guards.empty((size,), torch.float32)
            )
            memory.decode(decode_attention, q, out[:-1], heads, max_seq_len=max_seq_len)
    assert is_poison(out[-1]).all(), "wrote behind the last sequence"
    wanted = torch.cat([memory.expected(q[s : s + 1], heads, s) for s in range(len(lengths))])
    wanted[[n == 0 for n in lengths]] = 0.0
    allowed = FINE[dtype] if cache is None else SCALED[cache]
    torch.testing.assert_close(out[:-1].double(), wanted, rtol=allowed, atol=allowed)
    return out[:-1]


@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 150), min_size=1, max_size=4),
    block=st.sampled_from([8, 16, 32, 64, 128]),
    heads=st.sampled_from([(1, 1), (4, 1), (8, 1), (6, 2), (2, 2)]),
    dim=st.sampled_from([64, 128]),
    dtype=st.sampled_from(sorted(FINE, key=str)),
    cache=st.sampled_from([None, None, torch.int8, torch.float8_e4m3fn]),
)
def test_ragged_batches_equal_dense_attention(
    lengths: list[int], block: int, heads: tuple[int, int], dim: int, dtype: torch.dtype, cache: torch.dtype | None
) -> None:
    if cache is not None and dtype == torch.bfloat16:
        dtype = torch.float16  # the interpreter truncates a bfloat16 result, which says nothing about the cache
    check(lengths, block, *heads, dim, dtype, cache)


@pytest.mark.parametrize("block", [8, 16, 64])
@pytest.mark.parametrize("cache", [None, torch.float16, torch.int8, torch.float8_e4m3fn])
def test_case_16_garbage_behind_the_end_is_never_read(block: int, cache: torch.dtype | None) -> None:
    lengths = sorted({1, block - 1, block, block + 1, 64})
    check(
        lengths,
        block,
        4,
        1,
        64,
        torch.float16 if cache == torch.float16 else torch.float32,
        None if cache == torch.float16 else cache,
    )


def test_case_17_short_sequences_and_none_at_all_leave_splits_empty() -> None:
    split = split_size(8 * 256)
    assert 8 * 256 // split == 8
    found = check([1, 17, 0], 16, 4, 2, 64, torch.float32, max_seq_len=8 * split)
    assert (found[2] == 0).all()


def test_case_17_results_do_not_depend_on_the_number_of_splits() -> None:
    """8 splits of the longest sequence, 2 and a single one."""
    windows = [32768, 131072, 262144]
    assert [-(-4096 // split_size(window)) for window in windows] == [8, 2, 1]
    found = [check([1, 4096, 0, 17], 64, 2, 1, 64, torch.float32, max_seq_len=window) for window in windows]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-6)


def test_a_row_has_the_same_bits_in_every_batch_and_whoever_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [300, 40, 700]
    with Guards() as guards:
        memory = PagedMemory(guards, lengths, 16, 2, 64, torch.float32)
        q = queries(guards, 3, 4, 2, 64, torch.float32)
        out = guards.empty((3, 256), torch.float32)
        memory.decode(decode_attention, q, out, 4, max_seq_len=1024)
        for programs in (1, 50):
            monkeypatch.setattr(module, "_programs", lambda _device, programs=programs: programs)
            again = guards.empty((3, 256), torch.float32)
            memory.decode(decode_attention, q, again, 4, max_seq_len=1024)
            assert torch.equal(out, again)
        alone = guards.empty((1, 256), torch.float32)
        decode_attention(
            q[2:], *memory.caches, memory.tables[2:], memory.seq_lens[2:], 64**-0.5, alone, 4, max_seq_len=1024
        )
    assert torch.equal(alone, out[2:])


def test_the_reference_is_dense_attention() -> None:
    for cache in (torch.float64, torch.int8, torch.float8_e4m3fn):
        with Guards() as guards:
            memory = PagedMemory(guards, [1, 40, 0, 65], 16, 2, 64, cache)
            q = queries(guards, 4, 6, 2, 64, torch.float64)
            out = guards.empty((4, 384), torch.float64)
            memory.decode(decode_attention_reference, q, out, 6)
        wanted = torch.cat([memory.expected(q[s : s + 1], 6, s) for s in range(4)]).nan_to_num(0.0)
        precise = cache == torch.float64
        torch.testing.assert_close(out, wanted, rtol=1e-12 if precise else 1e-5, atol=1e-12 if precise else 1e-5)


def test_splits_are_few_whatever_the_window() -> None:
    for window in (1, 255, 4096, 16384, 16385, 40960, 131072, 1 << 20):
        split = split_size(window)
        assert split >= 256
        assert split & (split - 1) == 0
        assert -(-window // split) <= module.MOST_SPLITS


def test_head_sizes_that_tiles_cannot_have_are_refused() -> None:
    for dim in (16, 80):
        caches = [torch.zeros(1, 1, 16, dim) for _ in range(2)]
        lens = torch.ones(1, dtype=torch.int32)
        with pytest.raises(InputError, match=f"found {dim}"):
            decode_attention(torch.zeros(1, dim), *caches, lens.view(1, 1), lens, 1.0, torch.zeros(1, dim), 1)


def test_a_quantised_cache_needs_scales() -> None:
    caches = [torch.zeros(1, 1, 16, 64, dtype=torch.int8) for _ in range(2)]
    lens = torch.ones(1, dtype=torch.int32)
    with pytest.raises(InputError, match="needs the scales"):
        decode_attention(torch.zeros(1, 64), *caches, lens.view(1, 1), lens, 1.0, torch.zeros(1, 64), 1)
