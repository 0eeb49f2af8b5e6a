"""A Hugging Face folder: config.json, weights in one or several safetensors files, tokenizer.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from gpu_backend.model_files.hugging_face import Stored
from scenarios.documents import read_text
from scenarios.errors import InputError
from scenarios.hf_config import read_config
from scenarios.models import ModelSpec

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PRECISIONS = ("F32", "F16", "BF16")
"""What is read, by safetensors' own names."""

ARCHITECTURES = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM",
)  # fmt: skip
"""Whose weights are read; configs of a few more are known to the cost models."""


class HuggingFaceFolder:
    """A model's folder.

    Raises:
        InputError: no such folder, no config, or a model that no decoder here computes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec: ModelSpec = read_config(path)
        _check_computed(json.loads(read_text(path / "config.json")), str(path / "config.json"))

    @property
    def source(self) -> str:
        return str(self.path)

    def tensors(self) -> dict[str, Stored]:
        """Every tensor of the folder's files by name; nothing is read yet.

        Raises:
            InputError: no safetensors file, one that is missing or broken, or an unknown precision.
        """
        found: dict[str, Stored] = {}
        for file in self._files():
            found |= _tensors(file)
        return found

    def _files(self) -> list[Path]:
        if (self.path / INDEX).is_file():
            return self._shards()
        if (self.path / SINGLE).is_file():
            return [self.path / SINGLE]
        others = sorted(f.name for pattern in ("*.bin", "*.pth", "*.pt") for f in self.path.glob(pattern))
        hint = f" ({', '.join(others[:3])}: pickled weights are not read)" if others else ""
        raise InputError(f"{self.path}: found neither {SINGLE} nor {INDEX}{hint}")

    def _shards(self) -> list[Path]:
        index = self.path / INDEX
        try:
            names = sorted(set(json.loads(read_text(index))["weight_map"].values()))
            files = [self.path / name for name in names]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{index}: not an index of safetensors files: {error}") from None
        for file in files:
            if not file.is_file():
                raise InputError(f"{index}: names {len(files)} files, and {file.name} is not there; copy it again")
        return files


def _tensors(file: Path) -> dict[str, Stored]:
    try:
        opened = safe_open(file, framework="pt")
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file}: not a whole safetensors file ({error}); copy it again") from None
    found = {}
    for name, part in slices.items():
        if part.get_dtype() not in PRECISIONS:
            raise InputError(f"{file}: {name}: found precision {part.get_dtype()}, read are {', '.join(PRECISIONS)}")
        found[name] = Stored(tuple(part.get_shape()), _reader(opened, name))
    return found


def _reader(opened: Any, name: str) -> Any:
    def read() -> torch.Tensor:
        return opened.get_tensor(name)

    return read


def _check_computed(config: dict[str, Any], source: str) -> None:
    """Refuses what the cost models do not look at but an answer depends on."""
    architecture = config["architectures"][0]
    if architecture not in ARCHITECTURES:
        raise InputError(f"{source}: weights of {architecture} are not read; read are {', '.join(ARCHITECTURES)}")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise InputError(f"{source}: hidden_act: found {activation!r}, decoders here compute silu")
    if architecture == "Qwen3MoeForCausalLM" and not config.get("norm_topk_prob", False):
        raise InputError(
            f"{source}: norm_topk_prob: found {config.get('norm_topk_prob', 'none (false)')}, decoders here renormalise the "
            "chosen experts' probabilities (true)"
        )
    rope = config.get("rope_parameters") or {}
    rotated = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0))
    if rotated != 1.0:
        raise InputError(f"{source}: partial_rotary_factor: found {rotated}, decoders here rotate whole heads (1.0)")
