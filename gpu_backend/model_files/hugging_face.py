"""What checkpoints call each weight of a decoder, in Hugging Face's names: shapes to expect, and the way there and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from gpu_backend.weights import LayerWeights, Weights, check_supported
from scenarios.errors import InputError
from scenarios.models import ModelSpec

Shape = tuple[int, ...]
_IGNORED = ("rotary_emb.inv_freq",)  # old Llama checkpoints store what the config already says


@dataclass(frozen=True)
class Stored:
    """A tensor that somebody can read: its shape is known before."""

    shape: Shape
    read: Callable[[], torch.Tensor]


def expected_shapes(spec: ModelSpec, found: Mapping[str, Stored]) -> dict[str, Shape]:
    """Shape by name of every weight of such a model.

    Experts come one by one, as in published files, or `(experts, ...)` in one tensor where `found` has them so. A bias of the
    attention's output, of which no config speaks, is expected where there is one.
    """
    hidden, heads = spec.hidden_size, {"q": spec.q_size, "k": spec.kv_size, "v": spec.kv_size}
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (spec.vocab_size, hidden)}
    for i in range(spec.num_layers):
        at = f"model.layers.{i}"
        shapes[f"{at}.input_layernorm.weight"] = shapes[f"{at}.post_attention_layernorm.weight"] = (hidden,)
        for part, rows in heads.items():
            shapes[f"{at}.self_attn.{part}_proj.weight"] = (rows, hidden)
            if spec.attention_bias:
                shapes[f"{at}.self_attn.{part}_proj.bias"] = (rows,)
        if spec.qk_norm:
            shapes[f"{at}.self_attn.q_norm.weight"] = shapes[f"{at}.self_attn.k_norm.weight"] = (spec.head_dim,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, spec.q_size)
        if f"{at}.self_attn.o_proj.bias" in found:
            shapes[f"{at}.self_attn.o_proj.bias"] = (hidden,)
        shapes |= _feed_forward_shapes(spec, f"{at}.mlp", found)
    shapes["model.norm.weight"] = (hidden,)
    if not spec.tie_embeddings:
        shapes["lm_head.weight"] = (spec.vocab_size, hidden)
    return shapes


def _feed_forward_shapes(spec: ModelSpec, at: str, found: Mapping[str, Stored]) -> dict[str, Shape]:
    def gated(prefix: str, width: int) -> dict[str, Shape]:
        up = {f"{prefix}.{part}_proj.weight": (width, spec.hidden_size) for part in ("gate", "up")}
        return {**up, f"{prefix}.down_proj.weight": (spec.hidden_size, width)}

    if not spec.num_experts:
        return gated(at, spec.intermediate_size)
    experts, width = spec.num_experts, spec.moe_intermediate_size
    shapes: dict[str, Shape] = {f"{at}.gate.weight": (experts, spec.hidden_size)}
    if f"{at}.experts.gate_up_proj" in found:
        shapes[f"{at}.experts.gate_up_proj"] = (experts, 2 * width, spec.hidden_size)
        shapes[f"{at}.experts.down_proj"] = (experts, spec.hidden_size, width)
    else:
        for e in range(experts):
            shapes |= gated(f"{at}.experts.{e}", width)
    return shapes


def check_shapes(spec: ModelSpec, found: Mapping[str, Stored], source: str) -> None:
    """Refuses files that are not such a model's, before anything is read.

    Raises:
        InputError: a tensor is missing, of another shape, or has no place in the model.
    """
    fused = any(name.endswith(".experts.gate_up_proj") for name in found)
    for what, n in (("layers", spec.num_layers), ("experts", 0 if fused else spec.num_experts)):
        if n > len(found):  # each has tensors of its own: so many need not be named one by one
            raise InputError(
                f"{source}: the config says {n} {what} for {spec.name}, but only {len(found)} tensors were found"
            )
    expected = expected_shapes(spec, found)
    missing = [name for name in expected if name not in found]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise InputError(
            f"{source}: {missing[0]}: is missing{more}; {spec.name} needs {len(expected)} tensors, this one of shape "
            f"{expected[missing[0]]}, and {len(found)} were found"
        )
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise InputError(
                f"{source}: {name}: found shape {found[name].shape}, but the config says {shape} for {spec.name}"
            )
    spare = [name for name in found if name not in expected and not name.endswith(_IGNORED)]
    if spec.tie_embeddings:
        spare = [name for name in spare if name != "lm_head.weight"]
    if spare:
        more = f" (and {len(spare) - 1} more)" if len(spare) > 1 else ""
        raise InputError(
            f"{source}: {spare[0]}{more}: {spec.name} has no place for it by its config ({spec.architecture}); without it the "
            "model would be computed wrongly"
        )


def assemble(
    spec: ModelSpec,
    found: Mapping[str, Stored],
    source: str,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Weights:
    """Reads a whole decoder tensor by tensor: beside the result, only one tensor is in memory at a time.

    Raises:
        InputError: the tensors are not such a model's, or no decoder here computes it.
    """
    check_supported(spec, experts=True)
    check_shapes(spec, found, source)

    def get(name: str) -> torch.Tensor:
        return found[name].read().detach().to(device, dtype).contiguous()

    def joined(names: list[str]) -> torch.Tensor:
        """One tensor of several, stacked along their rows."""
        shapes = [found[name].shape for name in names]
        whole = torch.empty((sum(s[0] for s in shapes), *shapes[0][1:]), device=device, dtype=dtype)
        for name, part in zip(names, whole.split([s[0] for s in shapes]), strict=True):
            part.copy_(found[name].read().detach())
        return whole

    def experts(at: str) -> dict[str, torch.Tensor]:
        if f"{at}.experts.gate_up_proj" in found:
            gate_up, down = get(f"{at}.experts.gate_up_proj"), get(f"{at}.experts.down_proj")
        else:
            each = range(spec.num_experts)
            gate_up = joined([f"{at}.experts.{e}.{part}_proj.weight" for e in each for part in ("gate", "up")])
            down = joined([f"{at}.experts.{e}.down_proj.weight" for e in each])
        return {
            "router": get(f"{at}.gate.weight"),
            "expert_gate_up": gate_up.view(spec.num_experts, -1, spec.hidden_size),
            "expert_down": down.view(spec.num_experts, spec.hidden_size, -1),
        }

    def dense(at: str) -> dict[str, torch.Tensor]:
        return {
            "gate_up": joined([f"{at}.{part}_proj.weight" for part in ("gate", "up")]),
            "down": get(f"{at}.down_proj.weight"),
        }

    def layer(at: str) -> LayerWeights:
        attention, o_bias = f"{at}.self_attn", f"{at}.self_attn.o_proj.bias"
        return LayerWeights(
            input_norm=get(f"{at}.input_layernorm.weight"),
            qkv=joined([f"{attention}.{part}_proj.weight" for part in "qkv"]),
            qkv_bias=joined([f"{attention}.{part}_proj.bias" for part in "qkv"]) if spec.attention_bias else None,
            q_norm=get(f"{attention}.q_norm.weight") if spec.qk_norm else None,
            k_norm=get(f"{attention}.k_norm.weight") if spec.qk_norm else None,
            o=get(f"{attention}.o_proj.weight"),
            o_bias=get(o_bias) if o_bias in found else None,
            post_norm=get(f"{at}.post_attention_layernorm.weight"),
            **(experts if spec.num_experts else dense)(f"{at}.mlp"),
        )

    layers = [layer(f"model.layers.{i}") for i in range(spec.num_layers)]
    embedding = get("model.embed_tokens.weight")
    head = embedding if spec.tie_embeddings else get("lm_head.weight")
    return Weights(embedding, layers, get("model.norm.weight"), head)


def from_hugging_face(spec: ModelSpec, state: Mapping[str, torch.Tensor]) -> Weights:
    """Float32 weights from a state dict under the names of `LlamaForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM` or
    `Qwen3MoeForCausalLM`."""
    found = {name: Stored(tuple(t.shape), lambda t=t: t) for name, t in state.items()}
    return assemble(spec, found, "state dict")


def to_hugging_face(spec: ModelSpec, weights: Weights) -> dict[str, torch.Tensor]:
    """The same weights under Hugging Face's names, views where possible; experts in one tensor a layer."""
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
        if spec.num_experts:
            state[f"{at}.mlp.gate.weight"] = layer.router
            state[f"{at}.mlp.experts.gate_up_proj"] = layer.expert_gate_up
            state[f"{at}.mlp.experts.down_proj"] = layer.expert_down
        else:
            for part, piece in zip(("gate", "up"), layer.gate_up.chunk(2), strict=True):
                state[f"{at}.mlp.{part}_proj.weight"] = piece
            state[f"{at}.mlp.down_proj.weight"] = layer.down
    return state
