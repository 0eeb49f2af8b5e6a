"""Which model a launch serves: its dimensions, and the precision that the checkpoint's own name or config states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scenarios import documents, hf_config
from scenarios import models as catalog
from scenarios.errors import InputError
from scenarios.models import ModelSpec

_SAME_DIMENSIONS = {
    "llama-3.3-70b": "Llama-3.1-70B",
    "deepseek-r1-distill-llama-8b": "Llama-3.1-8B",
    "deepseek-r1-distill-llama-70b": "Llama-3.1-70B",
}
"""Checkpoints of other names with the dimensions of a catalog entry."""

_SUFFIX = re.compile(
    r"[-_.](?:instruct|chat|it|hf|base|thinking|dynamic|static|kv|bf16|fp16|gguf|quantized|block|\d{4}|g\d+|"
    r"(?:fp8|nvfp4|mxfp4|fp4|awq|gptq|int4|int8|w4a16|w8a8|w8a16|4bit|8bit|bnb)(?:-?fp8)?)$",
    re.IGNORECASE,
)

_BITS = (
    (re.compile(r"fp8|w8a8-fp8", re.IGNORECASE), "fp8"),
    (re.compile(r"w8a8|int8|w8a16|8bit", re.IGNORECASE), "int8"),
    (re.compile(r"awq|gptq|int4|w4a16|4bit|fp4|bnb", re.IGNORECASE), "int4"),
)


@dataclass(frozen=True)
class LaunchedModel:
    """A model as it was found.

    Args:
        precision: of the checkpoint's weights where its name or config says one. how: for people.
    """

    spec: ModelSpec
    precision: str | None
    how: str


def launched_model(named: str, config: str | None) -> LaunchedModel:
    """The model of a launch.

    Args:
        named: what the engine was told. config: instead of looking it up: a Hugging Face config.json, its folder, or a name
            of the catalog.

    Raises:
        InputError: it is not in the catalog and nothing describes it, or its architecture is not modelled.
    """
    if config is not None:
        path = Path(config)
        if path.suffix == ".json" or path.exists():
            return _described(path, f"dimensions of {path}", named)
        return LaunchedModel(catalog.model(config), precision_in(named), f"dimensions of the catalog's {config}")
    if Path(named).is_dir() and (Path(named) / "config.json").is_file():
        return _described(Path(named), f"{named}/config.json", named)
    name = base_name(named)
    try:
        spec = catalog.model(_SAME_DIMENSIONS.get(name.lower(), name))
    except InputError as error:
        if "is not modelled" in str(error):
            raise InputError(f"{named}: {error}") from None
        raise InputError(
            f"{named}: there is no model {name!r} in the catalog ({', '.join(catalog.CATALOG)}); "
            "give its dimensions: --model-config config.json (of its Hugging Face repository)"
        ) from None
    how = f"the catalog's {spec.name}" + (
        "" if spec.name.lower() == name.lower() else f", of the same dimensions as {name}"
    )
    return LaunchedModel(spec, precision_in(named), how)


def base_name(named: str) -> str:
    """A model's name without organisation, path, cache layout, and what a checkpoint is tuned or quantised to."""
    cached = re.search(r"models--[^/]*?--([^/]+)", named)
    name = cached[1] if cached else named.rstrip("/").rsplit("/", 1)[-1]
    name = re.sub(r"^meta-(?=llama)", "", name, flags=re.IGNORECASE)
    while len(shorter := _SUFFIX.sub("", name)) < len(name):
        name = shorter
    return name


def precision_in(named: str) -> str | None:
    """The precision that a checkpoint's name ends with, None if it says none."""
    name = named.rstrip("/").rsplit("/", 1)[-1] if "models--" not in named else named
    tail = name[len(base_name(named)) :] if name.lower().startswith(base_name(named).lower()) else name
    return next((precision for pattern, precision in _BITS if pattern.search(tail)), None)


def refuse_architecture(architecture: str, where: str) -> None:
    """Raises InputError if the architecture that an engine logged is not modelled."""
    reason = hf_config.why_not_modelled({"model_type": _type_of(architecture)}, architecture)
    if reason:
        raise InputError(f"{where}: {architecture} is not modelled: {reason}")


def with_positions(spec: ModelSpec, positions: int) -> ModelSpec:
    """The same model with rotary positions stretched so far: nothing else that costs time changes."""
    return replace(spec, max_position_embeddings=max(positions, spec.max_position_embeddings))


def _type_of(architecture: str) -> str:
    """`GptOssForCausalLM` to `gpt_oss`."""
    stem = re.sub(r"For[A-Z]\w*$", "", architecture)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()


def _described(path: Path, how: str, named: str) -> LaunchedModel:
    """A model by its config; a checkpoint that is quantised is taken apart into dimensions and precision."""
    file = path / "config.json" if path.is_dir() else path
    text = documents.read_text(file)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: found {type(config).__name__}, but a Hugging Face config is a JSON object")
    stated = config.pop("quantization_config", None)
    spec = hf_config.from_config(config, str(file), base_name(named) or file.resolve().parent.name)
    precision = _quantized(stated) if isinstance(stated, Mapping) else None
    return LaunchedModel(spec, precision or precision_in(named), how)


def _quantized(stated: Mapping[str, Any]) -> str | None:
    """Precision of a checkpoint by its quantization_config."""
    method = str(stated.get("quant_method", "")).lower()
    bits = stated.get("bits")
    for group in (stated.get("config_groups") or {}).values() if isinstance(stated.get("config_groups"), dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict):
            bits = weights.get("num_bits", bits)
            method = "fp8" if weights.get("type") == "float" and bits == 8 else method
    if "fp8" in method:
        return "fp8"
    if bits in (4, 8):
        return "int4" if bits == 4 else "int8"
    return "int4" if method in ("awq", "gptq", "mxfp4", "bitsandbytes") else None
