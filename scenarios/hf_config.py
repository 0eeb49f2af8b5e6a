"""Reading a model's dimensions from a Hugging Face config.json; what the cost models do not cover is refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from scenarios import models
from scenarios.documents import read_text
from scenarios.errors import InputError, nearest
from scenarios.models import ModelSpec

_PLAIN = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {"attention_bias": True},
    "Qwen3ForCausalLM": {"qk_norm": True},
    "Qwen3MoeForCausalLM": {"qk_norm": True},
    "MixtralForCausalLM": {},
}
"""Architectures whose KV is plain grouped-query attention, and what their configs leave unsaid."""

_HYBRID = ("mamba", "jamba", "bamba", "zamba", "falcon_h1", "granitemoehybrid", "qwen3_next", "qwen3_5", "lfm2",
           "recurrent_gemma", "rwkv", "nemotron_h", "minimax_text", "kimi_linear", "plamo2")  # fmt: skip
_SLIDING = ("gemma2", "gemma3", "gemma3n", "gemma4", "gpt_oss", "cohere2", "phi3small", "olmo3", "llama4")


def model_of(name: str) -> ModelSpec:
    """A model of the catalog, or of a config.json (or the folder that holds one).

    Raises:
        InputError: neither.
    """
    return read_config(Path(name)) if Path(name).exists() else models.model(name)


def read_config(path: Path) -> ModelSpec:
    """The model that a config.json (or the folder that holds one) describes.

    Raises:
        InputError: not readable, a field missing or of the wrong kind, or an architecture that is not modelled.
    """
    file = path / "config.json" if os.path.isdir(path) else path
    text = read_text(file)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: found {type(config).__name__}, but a Hugging Face config is a JSON object")
    return from_config(config, str(file), file.resolve().parent.name or file.stem)


def from_config(config: Mapping[str, Any], source: str, name: str) -> ModelSpec:
    """The model that a Hugging Face config describes, called `name` unless the config says `_name_or_path`."""
    _check_kinds(config, source)
    architectures = config.get("architectures") or [""]
    architecture = str(architectures[0])
    reason = why_not_modelled(config, architecture)
    if reason:
        raise InputError(f"{source}: {architecture or config.get('model_type')} is not modelled: {reason}")
    if architecture not in _PLAIN:
        close = nearest(architecture, _PLAIN)
        hint = f" (nearest: {close})" if close else ""
        raise InputError(
            f"{source}: architectures: {architecture or 'missing'} is not known{hint}; known: {', '.join(_PLAIN)}"
        )
    number = _reader(config, source)
    hidden, heads = number("hidden_size"), number("num_attention_heads")
    if not heads:
        raise InputError(f"{source}: num_attention_heads: found 0, at least 1 is needed")
    experts = number("num_experts", number("num_local_experts", 0))
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    _check_kinds(rope, source)
    theta = config.get("rope_theta", rope.get("rope_theta", 10000.0))
    scaling = rope if rope.get("rope_type", rope.get("type", "default")) != "default" else None
    fields: dict[str, Any] = {
        "intermediate_size": number("intermediate_size"),
        "num_layers": number("num_hidden_layers"),
        "num_kv_heads": number("num_key_value_heads", heads),
        "head_dim": number("head_dim", hidden // heads),
        "vocab_size": number("vocab_size"),
        "max_position_embeddings": number("max_position_embeddings"),
        "num_experts": experts,
        "num_experts_per_tok": number("num_experts_per_tok") if experts else 0,
        "moe_intermediate_size": number("moe_intermediate_size", number("intermediate_size")) if experts else 0,
        "tie_embeddings": bool(config.get("tie_word_embeddings", False)),
        "attention_bias": bool(config.get("attention_bias", False)),
        "rope_theta": float(theta),
        "rms_norm_eps": float(config.get("rms_norm_eps", 1e-6)),
        "rope_scaling": scaling,
    }
    fields.update(_PLAIN[architecture])
    called = str(config.get("_name_or_path") or name)
    try:
        return ModelSpec(name=called, hidden_size=hidden, num_heads=heads, architecture=architecture, **fields)
    except ValueError as error:
        raise InputError(f"{source}: {error}") from None


def why_not_modelled(config: Mapping[str, Any], architecture: str) -> str | None:
    """Why the KV cache or the layers of such a model are not what the cost models assume; None if they are."""
    kind = str(config.get("model_type", "")).lower().replace("-", "_")
    if config.get("kv_lora_rank") or "deepseek_v" in kind or architecture.lower().startswith("deepseekv"):
        return "multi-head latent attention (MLA) keeps compressed KV, not plain grouped-query attention"
    if any(kind.startswith(h) or architecture.lower().startswith(h.replace("_", "")) for h in _HYBRID):
        return "a hybrid of attention and state-space or linear layers does not keep KV in every layer"
    types = config.get("layer_types") or []
    window = config.get("sliding_window")
    # Qwen configs state a window that is off; Mistral's is on wherever it is not null.
    off = config.get("use_sliding_window") is False
    if any(kind.startswith(s) for s in _SLIDING) or any("sliding" in str(t) or "chunked" in str(t) for t in types):
        return "sliding-window attention forgets KV that is assumed to be kept"
    if (window is not None and not off) or config.get("use_sliding_window"):
        return f"sliding-window attention (window {window}) forgets KV that is assumed to be kept"
    if any(t not in ("full_attention", "attention") for t in types):
        return f"layer types {sorted({str(t) for t in types})}: only full attention is modelled"
    if config.get("shared_expert_intermediate_size") or config.get("n_shared_experts"):
        return "shared experts beside the routed ones"
    if config.get("mlp_only_layers") or int(config.get("decoder_sparse_step") or 1) != 1:
        return "experts in some layers only"
    if "vision_config" in config or "text_config" in config or "audio_config" in config:
        return "multimodal models"
    if config.get("quantization_config"):
        return "weights quantised in the checkpoint; take the plain config and set engine.dtype"
    return None


_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "architectures": (list, "a list"),
    "layer_types": (list, "a list"),
    "rope_parameters": (dict, "an object"),
    "rope_scaling": (dict, "an object"),
    "rope_theta": ((int, float), "a number"),
    "rms_norm_eps": ((int, float), "a number"),
    "decoder_sparse_step": (int, "a whole number"),
}


def _check_kinds(config: Mapping[str, Any], source: str) -> None:
    for field, (kind, called) in _KINDS.items():
        value = config.get(field)
        if value is not None and not isinstance(value, kind):
            raise InputError(f"{source}: {field}: found {value!r}, but {called} is needed")


def _reader(config: Mapping[str, Any], source: str) -> Callable[..., int]:
    def number(field: str, default: int | None = None) -> int:
        value = config.get(field)
        if value is None:
            value = default
        if value is None:
            raise InputError(f"{source}: {field}: is required and missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{source}: {field}: found {value!r}, but a whole number is needed")
        return value

    return number
