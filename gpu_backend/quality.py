"""What quantisation does to a model's answers: every next-token distribution of a text, against those of the model as it is.

A plain forward pass over whole windows, in float32: weights are rounded and widened again, keys and values are rounded as a
cache would store them, and everything else stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from gpu_backend.quantization import FP8_MOST, INT8_MOST, absmax_scaled, dequantize, quantize
from gpu_backend.rope import rope_table
from gpu_backend.weights import LayerWeights, Weights, check_supported
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from sim.quality import UNQUANTISED, Loss

FEWEST_TOKENS = 129
"""Of a text: the 99th percentile of fewer than 128 predictions says nothing."""

_ROWS = 256  # rows of logits at a time: of a vocabulary of 150,000 they are 150 MB

Rounding = Callable[[torch.Tensor], torch.Tensor]


def _eight_bits(x: torch.Tensor) -> torch.Tensor:
    units, scale = absmax_scaled(x, INT8_MOST)
    return units.round() * scale.unsqueeze(-1)


def _float8(x: torch.Tensor) -> torch.Tensor:
    units, scale = absmax_scaled(x, FP8_MOST)
    return units.to(torch.float8_e4m3fn).to(x.dtype) * scale.unsqueeze(-1)


WEIGHT_ROUNDINGS: dict[str, Rounding] = {
    "int8": lambda weight: dequantize(quantize(weight, 8), weight.dtype),
    "int4": lambda weight: dequantize(quantize(weight, 4), weight.dtype),
    "fp8": _float8,
}
"""Of a dense layer's `(out, in)` weights: int8 and fp8 with a scale for each output, int4 one for a group of inputs."""

KV_ROUNDINGS: dict[str, Rounding] = {"int8": _eight_bits, "fp8": _float8}
"""Of keys (after their rotation) and values `(..., head_dim)`: one scale for each token and head."""


@dataclass(frozen=True)
class Measured:
    """A text under the model as it is, and what changes under each pair of precisions.

    tokens: positions at which a next token was predicted.
    """

    perplexity: float
    tokens: int
    window: int
    losses: tuple[Loss, ...]


def measure(
    spec: ModelSpec,
    weights: Weights,
    ids: Sequence[int],
    pairs: Sequence[tuple[str, str]],
    *,
    window: int = 2048,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Measured:
    """Runs a text through the model once as it is and once for each `(weights, kv)` pair of precisions.

    Each token but the first is predicted once, from at least half a window of tokens before it where the text has them.

    Args:
        ids: token ids of the text.
        window: most tokens that are seen at once; the model's own window if that is shorter.

    Raises:
        InputError: a precision that does not exist, a text that is too short, a window of less than two tokens.
    """
    check_supported(spec, experts=True)
    for weight, kv in pairs:
        check_precisions([weight], [kv])
    if len(ids) < FEWEST_TOKENS:
        raise InputError(f"text: found {len(ids)} tokens, at least {FEWEST_TOKENS} are needed to say anything")
    check_window(window)
    window = min(window, spec.max_position_embeddings, len(ids))
    text = torch.tensor(ids, device=weights.embedding.device)
    by_weight: dict[str, list[str]] = {UNQUANTISED: [UNQUANTISED]}
    for weight, kv in pairs:
        by_weight.setdefault(weight, []).append(kv)
    states: dict[tuple[str, str], torch.Tensor] = {}
    with torch.inference_mode():
        for done, (weight, kvs) in enumerate(by_weight.items()):
            progress(done, len(by_weight) + 1)
            roundings = [KV_ROUNDINGS.get(kv) for kv in kvs]
            found = hidden_states(spec, weights, text, window, WEIGHT_ROUNDINGS.get(weight), roundings)
            states |= zip([(weight, kv) for kv in kvs], found, strict=True)
        progress(len(by_weight), len(by_weight) + 1)
        perplexity, losses = _compared(weights.head, states, pairs, text[1:])
    return Measured(perplexity, len(text) - 1, window, losses)


def check_precisions(weights: Sequence[str], kv: Sequence[str]) -> None:
    """Raises InputError for a precision whose quality cannot be measured."""
    for what, names, known in (("weights", weights, WEIGHT_ROUNDINGS), ("kv", kv, KV_ROUNDINGS)):
        for name in names:
            if name not in known and name != UNQUANTISED:
                raise InputError(f"{what}: found {name!r}, allowed: {', '.join(known)}")


def check_window(window: int) -> None:
    """Raises InputError for a window that holds nothing to predict from."""
    if window < 2:
        raise InputError(f"window: found {window}, at least 2 tokens are needed")


def hidden_states(
    spec: ModelSpec,
    weights: Weights,
    ids: torch.Tensor,
    window: int,
    round_weights: Rounding | None = None,
    kv_roundings: Sequence[Rounding | None] = (None,),
) -> list[torch.Tensor]:
    """What the output head would see at each position of a text but the last, `(n - 1, hidden)`, for each rounding of KV.

    Windows overlap by half and run side by side, a layer at a time: only one layer's rounded weights are ever in memory.
    """
    spans = list(_spans(len(ids), window))
    rope = rope_table(spec, window).to(weights.embedding.device)
    states = [[weights.embedding[ids[begin:end]] for begin, end, _ in spans] for _ in kv_roundings]
    for layer in weights.layers:
        rounded = layer if round_weights is None else _rounded(layer, round_weights)
        for windows, round_kv in zip(states, kv_roundings, strict=True):
            for state in windows:
                _layer(spec, rounded, state, rope[: len(state)], round_kv)

    def joined(windows: list[torch.Tensor]) -> torch.Tensor:
        kept = [state[first:-1] for state, (_, _, first) in zip(windows, spans, strict=True)]
        return rms_norm(torch.cat(kept), (spec.hidden_size,), weights.final_norm, spec.rms_norm_eps)

    return [joined(windows) for windows in states]


def _spans(n: int, window: int) -> Iterator[tuple[int, int, int]]:
    """Begin and end of each window, and its first row that no window before has predicted from."""
    step = max(1, window // 2)
    ends = [*range(window, n, step), n]
    yield 0, ends[0], 0
    for before, end in pairwise(ends):
        begin = max(0, end - window)
        yield begin, end, before - 1 - begin


def _rounded(layer: LayerWeights, rounding: Rounding) -> LayerWeights:
    """The dense layers rounded; norms, biases and experts as they are, as engines keep them."""
    dense = {name: getattr(layer, name) for name in ("qkv", "o", "gate_up", "down")}
    return replace(layer, **{name: rounding(weight) for name, weight in dense.items() if weight is not None})


def _layer(spec: ModelSpec, w: LayerWeights, x: torch.Tensor, rope: torch.Tensor, round_kv: Rounding | None) -> None:
    """One layer over a window of n tokens; the residual stream `x` `(n, hidden)` is changed in place."""
    n, eps = len(x), spec.rms_norm_eps
    qkv = linear(rms_norm(x, (spec.hidden_size,), w.input_norm, eps), w.qkv, w.qkv_bias)
    q, k, v = (
        part.view(n, -1, spec.head_dim).transpose(0, 1)
        for part in qkv.split([spec.q_size, spec.kv_size, spec.kv_size], dim=1)
    )
    if w.q_norm is not None and w.k_norm is not None:
        q, k = (rms_norm(part, (spec.head_dim,), norm, eps) for part, norm in ((q, w.q_norm), (k, w.k_norm)))
    q, k = _rotated(q, rope), _rotated(k, rope)
    if round_kv is not None:
        k, v = round_kv(k), round_kv(v)
    grouped = spec.num_heads != spec.num_kv_heads
    attended = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=grouped)[0]
    x += linear(attended.transpose(0, 1).reshape(n, -1), w.o, w.o_bias)
    h = rms_norm(x, (spec.hidden_size,), w.post_norm, eps)
    x += _routed(spec, w, h) if spec.num_experts else _gated(h, w.gate_up, w.down)


def _gated(h: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    gate, up = linear(h, gate_up).chunk(2, dim=-1)
    return linear(silu(gate) * up, down)


def _routed(spec: ModelSpec, w: LayerWeights, h: torch.Tensor) -> torch.Tensor:
    """Each token through its likeliest experts, weighted by their probabilities, which then sum to one."""
    chance, chosen = linear(h, w.router).softmax(-1).topk(spec.num_experts_per_tok, dim=-1)
    chance = chance / chance.sum(-1, keepdim=True)
    out = torch.zeros_like(h)
    for e in chosen.unique().tolist():
        rows, place = (chosen == e).nonzero(as_tuple=True)
        out[rows] += chance[rows, place, None] * _gated(h[rows], w.expert_gate_up[e], w.expert_down[e])
    return out


def _rotated(x: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    cos, sin = rope.chunk(2, dim=-1)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _compared(
    head: torch.Tensor,
    states: dict[tuple[str, str], torch.Tensor],
    pairs: Sequence[tuple[str, str]],
    following: torch.Tensor,
) -> tuple[float, tuple[Loss, ...]]:
    """Perplexity of the model as it is, and the loss of each pair. following: the tokens that came `(n,)`."""
    plain_nll: list[torch.Tensor] = []
    nll: dict[tuple[str, str], list[torch.Tensor]] = {pair: [] for pair in pairs}
    divergence: dict[tuple[str, str], list[torch.Tensor]] = {pair: [] for pair in pairs}
    agree = dict.fromkeys(pairs, 0)
    for begin in range(0, len(following), _ROWS):
        rows = slice(begin, begin + _ROWS)
        came = following[rows, None]
        p = linear(states[UNQUANTISED, UNQUANTISED][rows], head).log_softmax(-1)
        plain_nll.append(-p.gather(1, came))
        for pair in pairs:
            q = linear(states[pair][rows], head).log_softmax(-1)
            nll[pair].append(-q.gather(1, came))
            divergence[pair].append((p.exp() * (p - q)).sum(-1))
            agree[pair] += int((p.argmax(-1) == q.argmax(-1)).sum())

    def loss(pair: tuple[str, str]) -> Loss:
        kl = torch.cat(divergence[pair]).double().clamp(min=0.0)  # rounding takes what is nearly 0 below it
        return Loss(
            weights=pair[0],
            kv=pair[1],
            perplexity=_perplexity(nll[pair]),
            mean_kl=kl.mean().item(),
            p99_kl=kl.quantile(0.99).item(),
            top1_agreement=agree[pair] / len(kl),
        )

    return _perplexity(plain_nll), tuple(loss(pair) for pair in pairs)


def _perplexity(nll: list[torch.Tensor]) -> float:
    return math.exp(torch.cat(nll).double().mean().item())
