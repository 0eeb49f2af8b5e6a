"""Weights of a decoder in memory, and drawn ones: timing does not depend on values. `gpu_backend.model_files.load` reads real ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from scenarios.errors import InputError
from scenarios.models import ModelSpec

ROPE_SCALINGS = ("default", "linear", "llama3", "factors")
"""Rotary scalings that `gpu_backend.rope` computes; `factors` divides each frequency by a number of its own."""


@dataclass
class LayerWeights:
    """One layer. Of H hidden, D head size, I the width of the feed-forward or of an expert, E experts.

    qkv: `(q_size + 2 kv_size, H)`, rows in that order. o: `(H, q_size)`. q_norm, k_norm: `(D,)`.
    gate_up: `(2 I, H)`, down: `(H, I)` of a dense feed-forward, else None.
    router: `(E, H)`, expert_gate_up: `(E, 2 I, H)`, expert_down: `(E, H, I)` where there are experts, else None.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: torch.Tensor | None = None
    down: torch.Tensor | None = None
    router: torch.Tensor | None = None
    expert_gate_up: torch.Tensor | None = None
    expert_down: torch.Tensor | None = None


@dataclass
class Weights:
    """A whole decoder, all of one precision on one device. embedding, head: `(vocabulary, hidden)`, the same tensor where
    they are tied."""

    embedding: torch.Tensor
    layers: list[LayerWeights]
    final_norm: torch.Tensor
    head: torch.Tensor


def check_supported(spec: ModelSpec, *, experts: bool = False) -> None:
    """Refuses what a decoder would compute wrongly.

    experts: whether the engine has a feed-forward of routed experts; the CPU engine has none.

    Raises:
        InputError: experts, or a rotary scaling that is not known.
    """
    if spec.num_experts and not experts:
        raise InputError(f"model {spec.name}: {spec.num_experts} experts; the CPU engine runs dense models only")
    if spec.head_dim % 2:
        raise InputError(f"model {spec.name}: head_dim {spec.head_dim} is odd; rotary positions need pairs")
    if spec.rope_scaling is not None:
        kind = spec.rope_scaling.get("rope_type", spec.rope_scaling.get("type"))
        if kind not in ROPE_SCALINGS:
            raise InputError(f"model {spec.name}: rope_scaling {kind!r}, engines know {', '.join(ROPE_SCALINGS)}")


def random_weights(
    spec: ModelSpec, seed: int = 0, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Weights:
    """Weights of the spec's shapes, drawn so that activations keep a magnitude of about one.

    They are drawn in `dtype` on the device itself, one after the other: nothing but them is ever allocated. A seed means the
    same weights on one device and precision only. How experts are chosen by a random router says nothing of a real one.

    Raises:
        InputError: a model that no decoder here computes.
    """
    check_supported(spec, experts=True)
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        return torch.empty(shape, device=device, dtype=dtype).normal_(mean=mean, std=std, generator=generator)

    def matrix(*shape: int) -> torch.Tensor:
        return normal(*shape, std=shape[-1] ** -0.5)

    def vector(n: int, mean: float) -> torch.Tensor:
        return normal(n, mean=mean, std=0.1)

    hidden, qkv_size = spec.hidden_size, spec.q_size + 2 * spec.kv_size

    def feed_forward() -> dict[str, torch.Tensor]:
        if not spec.num_experts:
            width = spec.intermediate_size
            return {"gate_up": matrix(2 * width, hidden), "down": matrix(hidden, width)}
        experts, width = spec.num_experts, spec.moe_intermediate_size
        return {
            "router": matrix(experts, hidden),
            "expert_gate_up": matrix(experts, 2 * width, hidden),
            "expert_down": matrix(experts, hidden, width),
        }

    embedding = normal(spec.vocab_size, hidden)
    layers = [
        LayerWeights(
            input_norm=vector(hidden, 1.0),
            qkv=matrix(qkv_size, hidden),
            qkv_bias=vector(qkv_size, 0.0) if spec.attention_bias else None,
            q_norm=vector(spec.head_dim, 1.0) if spec.qk_norm else None,
            k_norm=vector(spec.head_dim, 1.0) if spec.qk_norm else None,
            o=matrix(hidden, spec.q_size),
            o_bias=None,
            post_norm=vector(hidden, 1.0),
            **feed_forward(),
        )
        for _ in range(spec.num_layers)
    ]
    final_norm = vector(hidden, 1.0)
    if spec.tie_embeddings:
        embedding *= hidden**-0.5  # as a head its rows must be small
        return Weights(embedding, layers, final_norm, embedding)
    return Weights(embedding, layers, final_norm, matrix(spec.vocab_size, hidden))
