"""Rotary positions: the table of cosines and sines that both engines read."""

from __future__ import annotations

import math

import torch

from scenarios.models import ModelSpec


def rope_table(spec: ModelSpec, window: int) -> torch.Tensor:
    """float32 `(window, head_dim)`: cosines of each position, then sines, in Hugging Face's (half-split) order."""
    frequency = 1.0 / spec.rope_theta ** (torch.arange(0, spec.head_dim, 2).float() / spec.head_dim)
    scaling = spec.rope_scaling or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "linear":
        frequency = frequency / float(scaling["factor"])
    elif kind == "llama3":
        # Long waves are stretched by `factor`, short ones kept, those between are blended (Llama 3.1).
        factor, low, high = (float(scaling[k]) for k in ("factor", "low_freq_factor", "high_freq_factor"))
        turns = float(scaling["original_max_position_embeddings"]) * frequency / (2 * math.pi)
        keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        frequency = keep * frequency + (1 - keep) * frequency / factor
    elif kind == "factors":
        frequency = frequency / torch.tensor(scaling["factors"])  # a GGUF file has llama3's scaling as its outcome
    angle = torch.outer(torch.arange(window).float(), frequency)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)
