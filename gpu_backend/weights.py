"""Weights of a decoder: drawn from a seed (timing does not depend on values), or from a Hugging Face state dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from scenarios.errors import InputError
from scenarios.models import ModelSpec


@dataclass
class LayerWeights:
    """One layer, float32. qkv: (q_size + 2 kv_size, hidden), gate_up: (2 intermediate, hidden), rows in that order."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass
class Weights:
    """A whole decoder. embedding, head: (vocabulary, hidden), the same tensor where they are tied."""

    embedding: torch.Tensor
    layers: list[LayerWeights]
    final_norm: torch.Tensor
    head: torch.Tensor


def check_supported(spec: ModelSpec) -> None:
    """Refuses what the decoder would compute wrongly.

    Raises:
        InputError: experts, or a rotary scaling that is not known.
    """
    if spec.num_experts:
        raise InputError(f"model {spec.name}: {spec.num_experts} experts; the CPU engine runs dense models only")
    if spec.head_dim % 2:
        raise InputError(f"model {spec.name}: head_dim {spec.head_dim} is odd; rotary positions need pairs")
    if spec.rope_scaling is not None:
        kind = spec.rope_scaling.get("rope_type", spec.rope_scaling.get("type"))
        if kind not in ("default", "linear", "llama3"):
            raise InputError(f"model {spec.name}: rope_scaling {kind!r}, the CPU engine knows default, linear, llama3")


def random_weights(spec: ModelSpec, seed: int = 0) -> Weights:
    """Weights of the spec's shapes, drawn so that activations keep a magnitude of about one."""
    check_supported(spec)
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.empty(rows, columns).normal_(std=columns**-0.5, generator=generator)

    def vector(n: int, mean: float) -> torch.Tensor:
        return torch.empty(n).normal_(mean=mean, std=0.1, generator=generator)

    hidden, qkv_size = spec.hidden_size, spec.q_size + 2 * spec.kv_size
    embedding = torch.empty(spec.vocab_size, hidden).normal_(std=1.0, generator=generator)
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
            gate_up=matrix(2 * spec.intermediate_size, hidden),
            down=matrix(hidden, spec.intermediate_size),
        )
        for _ in range(spec.num_layers)
    ]
    final_norm = vector(hidden, 1.0)
    if spec.tie_embeddings:
        embedding *= hidden**-0.5  # as a head its rows must be small
        return Weights(embedding, layers, final_norm, embedding)
    return Weights(embedding, layers, final_norm, matrix(spec.vocab_size, hidden))


def from_hugging_face(spec: ModelSpec, state: Mapping[str, torch.Tensor]) -> Weights:
    """Weights under the names that `LlamaForCausalLM`, `Qwen2ForCausalLM` and `Qwen3ForCausalLM` give them."""
    check_supported(spec)

    def get(name: str) -> torch.Tensor:
        return state[name].detach().float().contiguous()

    def joined(prefix: str, parts: tuple[str, ...], kind: str = "weight") -> torch.Tensor:
        return torch.cat([get(f"{prefix}.{part}_proj.{kind}") for part in parts])

    layers = []
    for i in range(spec.num_layers):
        at = f"model.layers.{i}"
        o_bias = f"{at}.self_attn.o_proj.bias"  # Llama's attention_bias covers it, Qwen2's does not
        layers.append(
            LayerWeights(
                input_norm=get(f"{at}.input_layernorm.weight"),
                qkv=joined(f"{at}.self_attn", ("q", "k", "v")),
                qkv_bias=joined(f"{at}.self_attn", ("q", "k", "v"), "bias") if spec.attention_bias else None,
                q_norm=get(f"{at}.self_attn.q_norm.weight") if spec.qk_norm else None,
                k_norm=get(f"{at}.self_attn.k_norm.weight") if spec.qk_norm else None,
                o=get(f"{at}.self_attn.o_proj.weight"),
                o_bias=get(o_bias) if o_bias in state else None,
                post_norm=get(f"{at}.post_attention_layernorm.weight"),
                gate_up=joined(f"{at}.mlp", ("gate", "up")),
                down=get(f"{at}.mlp.down_proj.weight"),
            )
        )
    embedding = get("model.embed_tokens.weight")
    head = embedding if spec.tie_embeddings else get("lm_head.weight")
    return Weights(embedding, layers, get("model.norm.weight"), head)


def to_hugging_face(spec: ModelSpec, weights: Weights) -> dict[str, torch.Tensor]:
    """The same weights under Hugging Face's names, views where possible."""
    state = {"model.embed_tokens.weight": weights.embedding, "lm_head.weight": weights.head}
    state["model.norm.weight"] = weights.final_norm
    heads = [spec.q_size, spec.kv_size, spec.kv_size]
    for i, layer in enumerate(weights.layers):
        at = f"model.layers.{i}"
        state[f"{at}.input_layernorm.weight"] = layer.input_norm
        state[f"{at}.post_attention_layernorm.weight"] = layer.post_norm
        for part, piece in zip("qkv", layer.qkv.split(heads), strict=True):
            state[f"{at}.self_attn.{part}_proj.weight"] = piece
        if layer.qkv_bias is not None:
            for part, piece in zip("qkv", layer.qkv_bias.split(heads), strict=True):
                state[f"{at}.self_attn.{part}_proj.bias"] = piece
        if layer.q_norm is not None and layer.k_norm is not None:
            state[f"{at}.self_attn.q_norm.weight"] = layer.q_norm
            state[f"{at}.self_attn.k_norm.weight"] = layer.k_norm
        state[f"{at}.self_attn.o_proj.weight"] = layer.o
        if layer.o_bias is not None:
            state[f"{at}.self_attn.o_proj.bias"] = layer.o_bias
        for part, piece in zip(("gate", "up"), layer.gate_up.chunk(2), strict=True):
            state[f"{at}.mlp.{part}_proj.weight"] = piece
        state[f"{at}.mlp.down_proj.weight"] = layer.down
    return state
