"""RMSNorm, SwiGLU and the rotary write against their references in float64, on buffers that stand in poison.

The interpreter truncates float32 to bf16 where a GPU rounds, so that bf16 is allowed one step of it.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_backend.kernels.rms_norm import add_rms_norm, add_rms_norm_reference
from gpu_backend.kernels.rope import qk_norm_rope_write, qk_norm_rope_write_reference
from gpu_backend.kernels.silu_mul import silu_mul, silu_mul_reference
from tests.gpu_backend.kernels.conftest import Guards

STEP = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative difference of neighbours, or of sums in another order."""

few = settings(max_examples=12, deadline=None)
dtypes = st.sampled_from(sorted(STEP, key=str))


def close(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> None:
    assert torch.isfinite(found.double()).all()
    torch.testing.assert_close(found.double(), wanted.double(), rtol=STEP[dtype], atol=2 * STEP[dtype])


@few
@given(
    rows=st.integers(0, 5),
    width=st.sampled_from([1, 24, 64, 576, 1000]),
    residual=st.booleans(),
    in_place=st.booleans(),
    dtype=dtypes,
    seed=st.integers(0, 99),
)
def test_rms_norm_adds_the_residual_and_norms_what_it_keeps(
    rows: int, width: int, residual: bool, in_place: bool, dtype: torch.dtype, seed: int
) -> None:
    g = torch.Generator().manual_seed(seed)
    x, kept = (torch.randn(rows, width, generator=g).to(dtype) for _ in range(2))
    weight = torch.randn(width, generator=g).to(dtype)
    wide = kept.double() if residual else None
    wanted = add_rms_norm_reference(x.double(), wide, weight.double(), 1e-5)
    with Guards() as guards:
        placed, stream = guards.place(x), guards.place(kept) if residual else None
        out = placed if in_place else guards.empty(x.shape, dtype)
        assert add_rms_norm(placed, stream, guards.place(weight), 1e-5, out) is out
    close(out, wanted, dtype)
    if stream is not None and wide is not None:
        close(stream, wide, dtype)


@few
@given(rows=st.integers(0, 4), width=st.sampled_from([1, 24, 96, 1536, 2100]), dtype=dtypes, seed=st.integers(0, 99))
def test_silu_mul_gates_the_second_half_by_the_first(rows: int, width: int, dtype: torch.dtype, seed: int) -> None:
    gate_up = (8 * torch.randn(rows, 2 * width, generator=torch.Generator().manual_seed(seed))).to(dtype)
    with Guards() as guards:
        out = silu_mul(guards.place(gate_up), guards.empty((rows, width), dtype))
    wanted = silu_mul_reference(gate_up.double())
    torch.testing.assert_close(out.double(), wanted, rtol=2 * STEP[dtype], atol=1e-6)


def test_silu_mul_of_large_gates_is_finite() -> None:
    gates = torch.tensor([[-1e4, 1e4, -200.0, 0.0, 1.0, 1.0, 1.0, 1.0]])
    assert silu_mul(gates).tolist() == [[0.0, 1e4, 0.0, 0.0]]


class Rotary:
    """Rows of a step, every third of them padding; each other owns a slot of a cache that holds 3 everywhere."""

    def __init__(
        self, tokens: int, group: int, kv_heads: int, dim: int, norms: bool, dtype: torch.dtype, cache: torch.dtype
    ) -> None:
        g = torch.Generator().manual_seed(tokens * dim + group)
        self.heads, self.block, blocks, window = group * kv_heads, 4, tokens + 1, 50
        width = (self.heads + 2 * kv_heads) * dim
        self.qkv = torch.randn(tokens, width, generator=g).to(dtype)
        self.norms = [(1 + torch.randn(dim, generator=g)).to(dtype) if norms else None for _ in range(2)]
        angle = torch.rand(window, dim // 2, generator=g) * 6
        self.rope = torch.cat([angle.cos(), angle.sin()], dim=1)
        self.positions = torch.randint(0, window, (tokens,), generator=g, dtype=torch.int32)
        self.slots = torch.randperm(blocks * self.block, generator=g)[:tokens]
        self.slots[::3] = -1
        self.positions[::3] = 2**31 - 1  # Of padding nothing is read.
        shape = (blocks, kv_heads, self.block, dim)
        self.caches = [torch.full(shape, 3.0).to(cache) for _ in range(2)]
        scaled = cache in (torch.int8, torch.float8_e4m3fn)
        self.scales = [torch.full(shape[:3], 3.0) if scaled else None for _ in range(2)]

    def reference(self, wide: torch.dtype) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor | None]]:
        """Queries and caches as the reference leaves them; caches of values in `wide` where they hold values."""
        qkv = self.qkv.to(wide)
        caches = [c.to(wide) if s is None else c.clone() for c, s in zip(self.caches, self.scales, strict=True)]
        scales = [None if s is None else s.clone() for s in self.scales]
        norms = [None if n is None else n.to(wide) for n in self.norms]
        qk_norm_rope_write_reference(
            qkv, *norms, 1e-6, self.rope.to(wide), self.positions, self.slots, *caches, self.heads, *scales
        )
        return qkv, caches, scales

    def run(self, apart: int = 0) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor | None]]:
        """The kernel's; rows of qkv are `apart` elements apart, which hold poison."""
        with Guards() as guards:

            def placed(t: torch.Tensor | None) -> torch.Tensor | None:
                return None if t is None else guards.place(t)

            tokens, width = self.qkv.shape
            whole = guards.empty((tokens, width + apart), self.qkv.dtype)
            qkv = whole[:, :width]
            qkv.copy_(self.qkv)
            caches, scales = [placed(c) for c in self.caches], [placed(s) for s in self.scales]
            norms, rope = [placed(n) for n in self.norms], placed(self.rope)
            positions, slots = placed(self.positions), placed(self.slots)
            qk_norm_rope_write(qkv, *norms, 1e-6, rope, positions, slots, *caches, self.heads, *scales)  # type: ignore[arg-type]
            assert whole[:, width:].isnan().all()
        return qkv, caches, scales  # type: ignore[return-value]


heads = {"group": st.sampled_from([1, 3, 4, 8]), "kv_heads": st.sampled_from([1, 2, 5])}


@few
@given(
    tokens=st.integers(0, 4),
    dim=st.sampled_from([64, 128, 80]),
    norms=st.booleans(),
    dtype=dtypes,
    apart=st.sampled_from([0, 16]),
    **heads,
)
def test_rotary_write_turns_queries_and_stores_keys_and_values(
    tokens: int, group: int, kv_heads: int, dim: int, norms: bool, dtype: torch.dtype, apart: int
) -> None:
    step = Rotary(tokens, group, kv_heads, dim, norms, dtype, dtype)
    qkv, caches, _ = step.run(apart)
    wanted, stored, _ = step.reference(torch.float64)
    close(qkv, wanted, dtype)
    for cache, reference in zip(caches, stored, strict=True):
        close(cache, reference, dtype)
    # Padding, and what follows the queries of a row, is as it was.
    assert torch.equal(qkv[::3], step.qkv[::3])
    assert torch.equal(qkv[:, step.heads * dim :], step.qkv[:, step.heads * dim :])
    owned = torch.zeros(caches[0].shape[0] * step.block, dtype=torch.bool)
    owned[step.slots[step.slots >= 0]] = True
    for cache in caches:
        assert (cache.transpose(1, 2).flatten(0, 1)[~owned] == 3).all()


@few
@given(tokens=st.integers(1, 4), dim=st.sampled_from([64, 128]), norms=st.booleans(), **heads)
def test_int8_cache_holds_values_over_their_largest(
    tokens: int, group: int, kv_heads: int, dim: int, norms: bool
) -> None:
    step = Rotary(tokens, group, kv_heads, dim, norms, torch.float32, torch.int8)
    _, caches, scales = step.run()
    _, stored, wanted_scales = step.reference(torch.float64)
    for cache, scale, reference, wanted in zip(caches, scales, stored, wanted_scales, strict=True):
        torch.testing.assert_close(scale, wanted)
        # A value within rounding of a half may fall to either side.
        apart = (cache.int() - reference.int()).abs()
        assert apart.max() <= 1
        assert apart.float().mean() < 1e-3
    written = step.slots[step.slots >= 0]
    of_slots = caches[1].transpose(1, 2).flatten(0, 1)[written].int().abs().amax(-1)
    assert (of_slots == 127).all()


@pytest.mark.parametrize("dim", [64, 128])
def test_fp8_cache_holds_values_to_a_sixteenth_of_them(dim: int) -> None:
    step = Rotary(5, 4, 2, dim, True, torch.float32, torch.float8_e4m3fn)
    _, caches, scales = step.run()
    _, stored, _ = Rotary(5, 4, 2, dim, True, torch.float32, torch.float32).reference(torch.float64)
    written = step.slots[step.slots >= 0]
    for cache, scale, wanted in zip(caches, scales, stored, strict=True):
        assert scale is not None
        kept, unit, values = (
            t.double().transpose(1, 2).flatten(0, 1)[written] for t in (cache, scale.unsqueeze(-1), wanted)
        )
        torch.testing.assert_close(unit, values.abs().amax(-1, keepdim=True) / 448, rtol=1e-6, atol=0)
        assert ((kept - values / unit).abs() <= (values / unit).abs() / 15.9 + 2**-10).all()


def test_fp8_bits_are_those_of_torch() -> None:
    """The largest value is 448, so that the scale is 1; the rest are e4m3 numbers, points half way between two, and any."""
    g = torch.Generator().manual_seed(0)
    codes = torch.arange(127).to(torch.uint8).view(torch.float8_e4m3fn).float()
    points = torch.cat([codes, (codes[1:] + codes[:-1]) / 2, torch.rand(257, generator=g) * 0.05])
    points = points[torch.randperm(len(points), generator=g)[:509]] * torch.tensor([1.0, -1.0]).repeat(255)[:509]
    values = torch.cat([points, torch.tensor([448.0, 0.0, -0.0])]).clone()
    step = Rotary(2, 1, 1, 512, False, torch.float32, torch.float8_e4m3fn)
    step.qkv[1, -512:] = values
    _, (_, cache), (_, scale) = step.run()
    slot = int(step.slots[1])
    assert scale is not None
    assert scale[slot // 4, 0, slot % 4] == 1
    found = cache[slot // 4, 0, slot % 4].view(torch.uint8)
    assert torch.equal(found, values.to(torch.float8_e4m3fn).view(torch.uint8))


@pytest.mark.parametrize("cache", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
def test_head_of_zeros_is_stored_as_zeros(cache: torch.dtype) -> None:
    step = Rotary(2, 1, 1, 64, False, torch.float32, cache)
    step.qkv.zero_()
    _, caches, scales = step.run()
    slot = int(step.slots[1])
    for kept, scale in zip(caches, scales, strict=True):
        assert scale is not None
        assert (kept[slot // step.block, 0, slot % step.block].float() == 0).all()
        assert scale[slot // step.block, 0, slot % step.block] == 0
