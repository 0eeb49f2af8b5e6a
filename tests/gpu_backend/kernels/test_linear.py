"""Plain dense layers against float64, by both kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_backend.kernels.linear import linear, linear_reference, regime, tiles
from gpu_backend.kernels.linear_tma import linear_tma, usable
from scenarios.errors import InputError
from tests.gpu_backend.kernels.conftest import Guards

TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3}


def drawn(rows: int, inputs: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return (torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)) * inputs**-0.25).to(dtype)


def check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    exact = linear_reference(x.double(), weight.double(), None if bias is None else bias.double())
    assert (out.double() - exact).abs().max() <= TOLERANCE[x.dtype] * exact.abs().max().clamp(min=1.0)


@given(
    count=st.sampled_from([1, 2, 16, 17, 64, 65, 130]),
    rows=st.sampled_from([1, 24, 65, 100]),
    inputs=st.sampled_from([16, 72, 576, 1024]),
    dtype=st.sampled_from([torch.float16, torch.float32]),
    biased=st.booleans(),
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shape_computes_the_product(
    guards: Guards, count: int, rows: int, inputs: int, dtype: torch.dtype, biased: bool
) -> None:
    x, weight = guards.place(drawn(count, inputs, dtype)), guards.place(drawn(rows, inputs, dtype, 1))
    bias = torch.randn(rows).to(dtype) if biased else None
    out = guards.place(torch.full((count, rows), 7.0, dtype=dtype))
    assert linear(x, weight, bias, out) is out
    check(x, weight, bias, out)


@pytest.mark.parametrize("count", [1, 65, 300])
@pytest.mark.parametrize("rows", [24, 136])
@pytest.mark.parametrize("biased", [True, False])
def test_descriptors_compute_the_product(guards: Guards, count: int, rows: int, biased: bool) -> None:
    x, weight = guards.place(drawn(count, 200, torch.float16)), guards.place(drawn(rows, 200, torch.float16, 1))
    bias = torch.randn(rows).half() if biased else None
    out = guards.place(torch.full((count, rows), 7.0, dtype=torch.float16))
    linear_tma(x, weight, bias, out)
    check(x, weight, bias, out)


def test_descriptors_are_for_chips_that_have_them() -> None:
    x = torch.zeros(128, 64, dtype=torch.bfloat16)
    assert not usable(x, x, x)


def test_wide_outputs_take_wide_tiles() -> None:
    x, weight = drawn(3, 64, torch.float16), drawn(16400, 64, torch.float16, 1)
    out = torch.empty(3, 16400, dtype=torch.float16)
    linear_tma(x, weight, None, out)
    check(x, weight, None, out)


@pytest.mark.parametrize(("few", "many"), [(1, 16), (66, 130)])
def test_neighbours_of_a_regime_change_nothing(few: int, many: int) -> None:
    x, weight = drawn(many, 1024, torch.float16), drawn(70, 1024, torch.float16, 1)
    assert regime(few) == regime(many)
    assert tiles("split_16", 70, 1024, torch.float16).splits > 1
    assert torch.equal(linear(x, weight)[:few], linear(x[:few], weight))


def test_rows_may_lie_apart() -> None:
    wide, weight = drawn(5, 512, torch.float32), drawn(40, 256, torch.float32, 1)
    out = torch.zeros(5, 80)
    linear(wide[:, 128:384], weight, out=out[:, :40])
    check(wide[:, 128:384], weight, None, out[:, :40])
    assert (out[:, 40:] == 0).all()


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"found torch.float32 of shape \(3, 64\) and weights torch.float32 of shape \(8, 32\)"
    ):
        linear(torch.zeros(3, 64), torch.zeros(8, 32))
    with pytest.raises(InputError, match="float64"):
        linear(torch.zeros(3, 64).double(), torch.zeros(8, 64).double())


def test_no_tokens_no_rows() -> None:
    assert linear(torch.empty(0, 64), torch.zeros(8, 64)).shape == (0, 8)
