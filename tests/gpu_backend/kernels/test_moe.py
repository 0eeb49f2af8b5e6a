"""Routed experts against float64; routing by itself."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_backend.kernels.moe import moe, moe_reference, regime
from gpu_backend.kernels.moe_routing import route, route_reference
from scenarios.errors import InputError
from tests.gpu_backend.kernels.conftest import Guards

TOLERANCE = {torch.float32: 2e-6, torch.float16: 2e-3}


def layer(experts: int, width: int, inner: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * shape[-1] ** -0.5).to(dtype)

    return drawn(experts, width), drawn(experts, 2 * inner, width), drawn(experts, width, inner)


def tokens(count: int, width: int, router: torch.Tensor, top_k: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    """Of which no choice of experts hangs on rounding."""
    x = torch.randn(8 * count + 64, width, generator=torch.Generator().manual_seed(seed)).to(dtype)
    ranked = (x.double() @ router.double().T).sort(-1, descending=True).values
    clear = x if top_k == len(router) else x[ranked[:, top_k - 1] - ranked[:, top_k] > 5e-3]
    assert len(clear) >= count
    return clear[:count]


def check(x: torch.Tensor, weights: tuple[torch.Tensor, ...], top_k: int, out: torch.Tensor) -> None:
    exact = moe_reference(x.double(), *(w.double() for w in weights), top_k)
    assert (out.double() - exact).abs().max() <= TOLERANCE[x.dtype] * exact.abs().max().clamp(min=1.0)


@given(
    count=st.sampled_from([1, 2, 17, 40]),
    experts=st.sampled_from([2, 3, 8, 20]),
    top_k=st.integers(1, 4),
    width=st.sampled_from([32, 72, 104]),
    inner=st.sampled_from([16, 24, 40]),
    dtype=st.sampled_from([torch.float16, torch.float32]),
    seed=st.integers(0, 99),
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape_computes_the_experts(
    guards: Guards, count: int, experts: int, top_k: int, width: int, inner: int, dtype: torch.dtype, seed: int
) -> None:
    top_k = min(top_k, experts)
    weights = tuple(guards.place(w) for w in layer(experts, width, inner, dtype, seed))
    x = guards.place(tokens(count, width, weights[0], top_k, dtype, seed))
    out = guards.place(torch.full((count, width), 7.0, dtype=dtype))
    assert moe(x, *weights, top_k, out) is out
    check(x, weights, top_k, out)


@pytest.mark.parametrize("count", [1, 70])
def test_all_tokens_may_go_to_one_expert(count: int) -> None:
    weights = layer(8, 32, 16, torch.float16)
    x = torch.randn(count, 32, generator=torch.Generator().manual_seed(2)).half().abs()
    weights[0][5] = 4.0  # positive tokens all like it best; the other seven have none
    assert (route_reference(x.float() @ weights[0].float().T, 1)[1] == 5).all()
    check(x, weights, 1, moe(x, *weights, 1))


def test_every_expert_may_be_chosen() -> None:
    weights = layer(4, 32, 16, torch.float32)
    x = tokens(6, 32, weights[0], 4, torch.float32)
    check(x, weights, 4, moe(x, *weights, 4))


@pytest.mark.parametrize(("few", "many"), [(2, 30), (40, 70)])
def test_neighbours_of_a_regime_change_nothing(few: int, many: int) -> None:
    weights = layer(4, 32, 16, torch.float16)
    x = tokens(many, 32, weights[0], 2, torch.float16)
    assert regime(few, 2, 4) == regime(many, 2, 4)
    # (Beyond 64 tokens the router is computed in other tiles, and the weights of choices may differ in their last bits.)
    together, alone = moe(x, *weights, 2)[:few].float(), moe(x[:few], *weights, 2).float()
    assert torch.equal(together, alone) if many <= 64 else torch.allclose(together, alone, rtol=2e-3, atol=1e-3)


def test_rows_of_padding_disturb_nobody() -> None:
    weights = layer(8, 32, 16, torch.float32)
    x = tokens(5, 32, weights[0], 2, torch.float32)
    padded = torch.cat([x, torch.full((3, 32), float("nan")), torch.zeros(2, 32)])
    assert torch.equal(moe(padded, *weights, 2)[:5], moe(x, *weights, 2))


@given(count=st.integers(1, 24), experts=st.integers(1, 40), top_k=st.integers(1, 8), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_routing_puts_every_slot_into_one_tile_of_its_expert(count: int, experts: int, top_k: int, seed: int) -> None:
    top_k = min(top_k, experts)
    logits = torch.randn(count, experts, generator=torch.Generator().manual_seed(seed))
    routing = route(logits, top_k, tile=16)
    weights, chosen = route_reference(logits.double(), top_k)
    assert (routing.weights.view(count, top_k).double() - weights).abs().max() < 1e-6
    assert sorted(routing.order.tolist()) == list(range(count * top_k))
    starts, tiles = routing.starts.tolist(), routing.tiles.tolist()
    assert starts[-1] == count * top_k
    assert tiles[-1] <= routing.most_tiles
    for expert in range(experts):
        slots = routing.order[starts[expert] : starts[expert + 1]]
        assert (chosen.reshape(-1)[slots] == expert).all()
        assert slots.tolist() == sorted(slots.tolist())
        assert tiles[expert + 1] - tiles[expert] == -(-len(slots) // 16)


def test_shapes_that_do_not_fit_are_refused() -> None:
    router, gate_up, down = layer(4, 32, 16, torch.float32)
    x = torch.zeros(2, 32)
    with pytest.raises(InputError, match=r"down \(4, 32, 8\), top_k 2; need"):
        moe(x, router, gate_up, down[:, :, :8], 2)
    with pytest.raises(InputError, match="top_k 5"):
        moe(x, router, gate_up, down, 5)
    with pytest.raises(InputError, match="contiguous"):
        moe(x, router, gate_up, down.transpose(1, 2).contiguous().transpose(1, 2), 2)


def test_no_tokens_no_rows() -> None:
    assert moe(torch.empty(0, 32), *layer(4, 32, 16, torch.float32), 2).shape == (0, 32)
