"""Each numba kernel equals its plain torch neighbour, and neither reads what it must not."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from gpu_backend.cpu.kernels import TORCH, Kernels, best_kernels
from gpu_backend.cpu.kv_cache import MOST, narrowed, written

KV_TYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn]
GARBAGE = (float("nan"), 1e4, float("inf"))
NUMBA = best_kernels()
needs_numba = pytest.mark.skipif(NUMBA is TORCH, reason="numba is not installed")


both = pytest.mark.parametrize(
    "kernels", [pytest.param(TORCH, id="torch"), pytest.param(NUMBA, id="numba", marks=needs_numba)]
)


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """float64 attention of q (N, D) over k, v (K, length, D)."""
    group = len(q) // len(k)
    k, v = (x.double().repeat_interleave(group, 0) for x in (k, v))
    weights = torch.softmax((q.double().unsqueeze(1) @ k.transpose(1, 2)) * scale, dim=-1)
    return (weights @ v).reshape(-1).float()


class Paged:
    """Sequences of the given lengths in a cache whose every other slot holds garbage."""

    def __init__(self, lengths: list[int], block: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(len(lengths) + block)
        needs = [-(-n // block) for n in lengths]
        ids = np.random.default_rng(0).permutation(sum(needs) + 3)[: sum(needs)]
        self.lengths = np.array(lengths)
        self.starts = np.cumsum([0, *needs])[:-1]
        self.tables = ids.astype(np.int64)
        self.heads, self.block, self.scale = heads, block, dim**-0.5
        shape = (sum(needs) + 3, kv_heads, block, dim)
        fill = torch.tensor(GARBAGE)[torch.arange(shape[0] * kv_heads * block) % 3].view(shape[:3])
        self.k = fill.unsqueeze(-1).expand(shape).contiguous().to(dtype)
        self.v = self.k.clone()
        self.k_scales, self.v_scales = (fill.clone() if dtype in MOST else None for _ in range(2))
        self.q = torch.randn(len(lengths) + 2, heads * dim + 8, generator=generator)
        self.expected = torch.zeros(len(lengths), heads * dim)
        for s, n in enumerate(lengths):
            keys, values = (
                self._kept(cache, scales, torch.randn(kv_heads, n, dim, generator=generator), s)
                for cache, scales in ((self.k, self.k_scales), (self.v, self.v_scales))
            )
            if n:
                self.expected[s] = dense(self.q[s, : heads * dim].view(heads, dim), keys, values, self.scale)

    def _kept(self, cache: torch.Tensor, scales: torch.Tensor | None, x: torch.Tensor, s: int) -> torch.Tensor:
        """Puts x (K, length, D) into the blocks of sequence s; what it is when it is read again."""
        narrow, scale = (x.to(cache.dtype), None) if scales is None else narrowed(x, cache.dtype)
        for t in range(x.shape[1]):
            at = int(self.tables[self.starts[s] + t // self.block])
            cache[at, :, t % self.block] = narrow[:, t]
            if scales is not None:
                scales[at, :, t % self.block] = scale[:, t]
        return narrow.float() if scale is None else narrow.float() * scale.unsqueeze(-1)

    def attend(self, kernels: Kernels) -> torch.Tensor:
        out = torch.full((len(self.lengths) + 1, self.expected.shape[1]), 7.0)
        owned = (self.tables, self.starts, self.lengths)
        kernels.decode_attention(self.q, self.k, self.v, *owned, self.scale, out, self.k_scales, self.v_scales)
        assert (out[-1] == 7.0).all(), "wrote behind the last sequence"
        return out[:-1]


@both
@pytest.mark.parametrize("dtype", KV_TYPES)
@pytest.mark.parametrize("block", [1, 5, 16, 128])
def test_case_16_garbage_behind_the_end_is_never_read(kernels: Kernels, dtype: torch.dtype, block: int) -> None:
    lengths = sorted({1, block - 1, block, block + 1, 64} - {0})
    paged = Paged(lengths, block, heads=8, kv_heads=4, dim=64, dtype=dtype)
    torch.testing.assert_close(paged.attend(kernels), paged.expected, atol=2e-6, rtol=2e-5)


@both
@pytest.mark.parametrize("dtype", KV_TYPES)
def test_case_17_very_unequal_and_empty_sequences_share_a_batch(kernels: Kernels, dtype: torch.dtype) -> None:
    paged = Paged([1, 4096, 0, 17], 16, heads=4, kv_heads=2, dim=32, dtype=dtype)
    found = paged.attend(kernels)
    assert found.isfinite().all()
    assert (found[2] == 0).all()
    torch.testing.assert_close(found, paged.expected, atol=2e-6, rtol=2e-5)


@both
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(1, 1, 2), (6, 2, 20), (9, 3, 64), (4, 1, 128)])
def test_decode_attention_of_any_head_layout(kernels: Kernels, heads: int, kv_heads: int, dim: int) -> None:
    paged = Paged([3, 40, 16], 16, heads, kv_heads, dim, torch.float32)
    torch.testing.assert_close(paged.attend(kernels), paged.expected, atol=2e-6, rtol=2e-5)


@both
def test_decode_attention_with_scores_far_apart_stays_finite(kernels: Kernels) -> None:
    paged = Paged([33, 5], 16, heads=2, kv_heads=1, dim=16, dtype=torch.float32)
    paged.q *= 1e4
    found = paged.attend(kernels)
    # The softmax picks one key: the answer is one of the values.
    for row, start, n in zip(found, paged.starts.tolist(), paged.lengths.tolist(), strict=True):
        values = paged.v[torch.from_numpy(paged.tables[start : start + -(-n // 16)])].reshape(-1, 16)[:n]
        for head in row.view(2, 16):
            assert (values - head).abs().amax(-1).min() < 1e-5


@both
@pytest.mark.parametrize("rows", [1, 7])
def test_add_rms_norm_adds_in_place_and_normalises(kernels: Kernels, rows: int) -> None:
    x, residual, weight = torch.randn(rows, 65), torch.randn(rows, 65), torch.randn(65)
    total = (x + residual).double()
    expected = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    found = kernels.add_rms_norm(x, residual, weight, 1e-5)
    torch.testing.assert_close(residual, total.float())
    torch.testing.assert_close(found, expected.float(), atol=1e-6, rtol=1e-5)


@both
def test_silu_mul_over_the_whole_range(kernels: Kernels) -> None:
    gate = torch.cat([torch.linspace(-120, 120, 997), torch.tensor([0.0, -1e30, 1e30])])
    gate_up = torch.cat([gate, torch.randn(1000)]).repeat(3, 1)
    found = kernels.silu_mul(gate_up)
    expected = gate.double() * torch.sigmoid(gate.double()) * gate_up[:, 1000:].double()
    torch.testing.assert_close(found, expected.float(), atol=1e-6, rtol=1e-5)


@needs_numba
@pytest.mark.parametrize("dtype", KV_TYPES)
@pytest.mark.parametrize("norm", [True, False])
def test_norm_rope_write_equals_torch_and_touches_its_slots_only(dtype: torch.dtype, norm: bool) -> None:
    tokens, heads, kv_heads, dim, block = 9, 4, 2, 24, 4
    weights = (torch.randn(dim), torch.randn(dim)) if norm else (None, None)
    qkv, rope = torch.randn(tokens + 2, (heads + 2 * kv_heads) * dim), torch.randn(50, dim)
    positions = np.arange(tokens) * 3
    slots = np.random.default_rng(1).permutation(5 * block)[:tokens]
    results = []
    for kernels in (TORCH, NUMBA):
        q = qkv.clone()
        caches = [torch.full((5, kv_heads, block, dim), 9.0).to(dtype) for _ in range(2)]
        scales = [torch.full((5, kv_heads, block), 7.0) if dtype in MOST else None for _ in range(2)]
        kernels.qk_norm_rope_write(
            q, *weights, 1e-6, rope, positions, slots // block, slots % block, *caches, heads, *scales
        )
        untouched = [(c.float() == 9.0).all(-1).all(1).sum() for c in caches]
        untouched += [(s == 7.0).all(1).sum() for s in scales if s is not None]
        assert all(int(n) == 5 * block - tokens for n in untouched)
        assert torch.equal(q[tokens:], qkv[tokens:])
        read = [written(c, s, torch.arange(5)) for c, s in zip(caches, scales, strict=True)]
        results.append((q[:tokens, : heads * dim], *read))
    # Where the last bit of a float decides, a value may go to the neighbour: of int8 a 127th of the largest of its head.
    room = {torch.float32: (1e-5, 1e-5), torch.bfloat16: (1e-5, 2**-7), torch.int8: (0.04, 0.0)}
    atol, rtol = room.get(dtype, (1e-4, 2**-3))
    for mine, plain in zip(*results, strict=True):
        torch.testing.assert_close(mine, plain, atol=atol, rtol=rtol)


@needs_numba
@pytest.mark.parametrize("dtype", list(MOST))
def test_bytes_hold_what_torch_would_round_to(dtype: torch.dtype) -> None:
    """Every size there is: down to the least number of fp8 and below it, ties, both signs, and heads of zeros."""
    least = 2.0**-9
    sizes = torch.cat([torch.logspace(-5, 2, 500) * 4.48, torch.arange(1, 40) * least / 2, torch.tensor([448.0, 0.0])])
    values = torch.stack([torch.cat([sizes, -sizes]), torch.zeros(2 * len(sizes))])
    width = values.shape[1]
    qkv = torch.cat([torch.zeros(2, 2 * width), values], dim=1)
    k, v = (torch.zeros(1, 1, 2, width).to(dtype) for _ in range(2))
    k_scales, v_scales = torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)
    zero, both = np.zeros(2, dtype=np.int64), np.arange(2)
    rope = torch.zeros(1, width)
    NUMBA.qk_norm_rope_write(qkv, None, None, 1e-6, rope, zero, zero, both, k, v, 1, k_scales, v_scales)
    expected, scales = narrowed(values, dtype)
    assert torch.equal(v_scales[0, 0], scales)
    found, rounded = v[0, 0].view(torch.int8), expected.view(torch.int8)
    same = found == rounded
    assert same.float().mean() > 0.99
    assert ((found[~same].int() - rounded[~same].int()).abs() == 1).all()
    assert v[0, 0].float().isfinite().all()


@needs_numba
def test_bfloat16_is_rounded_to_nearest_even() -> None:
    values = torch.cat([torch.randn(1000), torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 0.0, -0.0, 3e38])])
    width = len(values) + 1
    qkv = torch.zeros(1, 3 * width)
    qkv[0, 2 * width : 2 * width + len(values)] = values
    k, v = (torch.zeros(1, 1, 1, width, dtype=torch.bfloat16) for _ in range(2))
    zero = np.zeros(1, dtype=np.int64)
    NUMBA.qk_norm_rope_write(qkv, None, None, 1e-6, torch.zeros(1, width), zero, zero, zero, k, v, 1)
    assert torch.equal(v[0, 0, 0, :-1], values.to(torch.bfloat16))


def test_without_numba_the_torch_kernels_are_chosen() -> None:
    code = "import sys; sys.modules['numba'] = None; from gpu_backend.cpu.kernels import best_kernels; print(best_kernels().name)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "torch\n"
