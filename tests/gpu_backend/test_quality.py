"""Losses of precisions: what they mean, and that each rounding is as coarse as its bits say."""

from __future__ import annotations

import pytest
import torch

from gpu_backend.model_files.hugging_face import to_hugging_face
from gpu_backend.quality import FEWEST_TOKENS, KV_ROUNDINGS, WEIGHT_ROUNDINGS, hidden_states, measure
from gpu_backend.weights import random_weights
from scenarios.errors import InputError
from scenarios.models import ModelSpec

SPEC = ModelSpec("quality-test", 64, 128, 2, 4, 2, 16, 97, qk_norm=True, attention_bias=True)
IDS = [i * i % 97 for i in range(200)]
BOTH = [("int8", "unquantised"), ("int4", "int8"), ("unquantised", "fp8"), ("fp8", "unquantised")]


def test_losses_are_what_their_definitions_say() -> None:
    weights = random_weights(SPEC, 3)
    found = measure(SPEC, weights, IDS, BOTH)
    with torch.inference_mode():
        plain = (hidden_states(SPEC, weights, torch.tensor(IDS), 200)[0] @ weights.head.T).double()
        for layer in weights.layers:
            for name in ("qkv", "o", "gate_up", "down"):
                setattr(layer, name, WEIGHT_ROUNDINGS["int4"](getattr(layer, name)))
        rounded = hidden_states(SPEC, weights, torch.tensor(IDS), 200, None, [KV_ROUNDINGS["int8"]])[0]
        changed = (rounded @ weights.head.T).double()
    following = torch.tensor(IDS[1:])
    p, q = plain.softmax(-1), changed.softmax(-1)
    kl = (p * (p / q).log()).sum(-1)
    loss = found.losses[1]
    assert (loss.weights, loss.kv, found.tokens) == ("int4", "int8", 199)
    assert found.perplexity == pytest.approx(torch.nn.functional.cross_entropy(plain, following).exp().item(), rel=1e-5)
    assert loss.perplexity == pytest.approx(
        torch.nn.functional.cross_entropy(changed, following).exp().item(), rel=1e-5
    )
    assert loss.mean_kl == pytest.approx(kl.mean().item(), rel=1e-3)
    assert loss.p99_kl == pytest.approx(kl.quantile(0.99).item(), rel=1e-3)
    assert loss.top1_agreement == (p.argmax(-1) == q.argmax(-1)).double().mean().item()


def test_measuring_changes_no_weight() -> None:
    weights = random_weights(SPEC, 3)
    measure(SPEC, weights, IDS, BOTH, window=50)
    again = to_hugging_face(SPEC, random_weights(SPEC, 3))
    assert all(torch.equal(again[name], tensor) for name, tensor in to_hugging_face(SPEC, weights).items())


@pytest.mark.parametrize("window", [2, 3, 7, 64, 199, 200, 1000])
def test_every_token_but_the_first_is_predicted_once_from_the_tokens_before_it(window: int) -> None:
    weights = random_weights(SPEC, 3)
    ids = torch.tensor(IDS)
    with torch.inference_mode():
        found = hidden_states(SPEC, weights, ids, min(window, 200))[0]
        assert len(found) == 199
        for i in (0, 1, 5, 63, 100, 198):
            # The window that predicts from i ends at the first end after i + 1.
            ends = [*range(window, 200, max(1, window // 2)), 200]
            end = next(e for e in ends if e > i + 1)
            expected = hidden_states(SPEC, weights, ids[max(0, end - window) : i + 2], i + 2 - max(0, end - window))[0]
            torch.testing.assert_close(found[i], expected[-1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "step"), [("int8", 1 / 254), ("fp8", 1 / 28)])
def test_kv_is_rounded_by_token_and_head(name: str, step: float) -> None:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    x[1, 2] = 0.0
    error = (KV_ROUNDINGS[name](x) - x).abs().amax(-1)
    assert (error <= x.abs().amax(-1) * step * 1.001).all()
    assert error[0].max() > 0


@pytest.mark.parametrize(("name", "step"), [("int8", 1 / 254), ("int4", 1 / 15), ("fp8", 1 / 28)])
def test_weights_are_rounded_by_output(name: str, step: float) -> None:
    weight = torch.randn(6, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 2, 6)[:, None]
    error = (WEIGHT_ROUNDINGS[name](weight) - weight).abs().amax(-1)
    assert (error <= weight.abs().amax(-1) * step * 1.01).all()
    assert error.min() > 0


def test_what_cannot_be_measured_is_refused() -> None:
    weights = random_weights(SPEC, 3)
    for pairs, ids, window, message in (
        ([("int3", "unquantised")], IDS, 100, "weights: found 'int3', allowed: int8, int4, fp8"),
        ([("int8", "int4")], IDS, 100, "kv: found 'int4', allowed: int8, fp8"),
        ([], IDS[: FEWEST_TOKENS - 1], 100, "text: found 128 tokens, at least 129"),
        ([], [], 100, "text: found 0 tokens"),
        ([], IDS, 1, "window: found 1"),
    ):
        with pytest.raises(InputError, match=message):
            measure(SPEC, weights, ids, pairs, window=window)
