"""A GGUF file (llama.cpp's format): dimensions, weights and tokenizer of a model in one file.

llama.cpp's converter reorders the rows of Q and K of the `llama` architecture, for a rotation of neighbouring pairs; they are
put back into Hugging Face's half-split order here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from gpu_backend.model_files.hugging_face import Stored
from scenarios.errors import InputError
from scenarios.models import CATALOG, ModelSpec

QUANTISATIONS = ("F32", "F16", "Q8_0", "Q4_1")
"""What is read, by GGUF's own names."""

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
}

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
_ROPE_FACTORS = "rope_freqs.weight"
_BROKEN = (ValueError, IndexError, KeyError, OverflowError, TypeError)  # what gguf's reader raises on other bytes


class _Reader(gguf.GGUFReader):
    """gguf's reader, in a fifth of the time, and clear about a file that ends too early."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(path)

    @property
    def data(self) -> np.ndarray:
        return self._bytes

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        # The same pages as a plain array: a slice of a memmap is another memmap, which takes long to make.
        self._bytes = mapped.view(np.ndarray)

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> np.ndarray:
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self._bytes):
            raise InputError(
                f"{self._path}: truncated: the file has {len(self._bytes):,} bytes, what it announces needs {end:,}; "
                "copy it again"
            )
        return super()._get(offset, dtype, count, override_order)

    def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
        for field in fields:
            kind = _kind(field, self._path)
            block, size = gguf.GGML_QUANT_SIZES[kind]
            end = int(start_offs) + int(field.parts[5][0]) + int(np.prod(field.parts[3])) // block * size
            if end > len(self._bytes):
                raise InputError(
                    f"{self._path}: {field.name}: truncated: the file has {len(self._bytes):,} bytes, this tensor ends at "
                    f"{end:,}; copy it again"
                )
        super()._build_tensors(start_offs, fields)


def _kind(field: Any, path: Path) -> gguf.GGMLQuantizationType:
    number = int(field.parts[4][0])
    try:
        kind = gguf.GGMLQuantizationType(number)
    except ValueError:
        kind = None
    if kind is None or kind.name not in QUANTISATIONS:
        found = f"type {number}" if kind is None else kind.name
        raise InputError(f"{path}: {field.name}: found {found}, read are {', '.join(QUANTISATIONS)}")
    return kind


class GgufFile:
    """A model's file; its header is read, its weights are not.

    Raises:
        InputError: not a GGUF file, truncated, of a precision or an architecture that is not read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._reader = _Reader(path)
        except InputError:
            raise
        except _BROKEN as error:
            raise InputError(f"{path}: not a GGUF file, or a damaged one: {error}") from None
        self._shapes = {t.name: tuple(int(n) for n in reversed(t.shape)) for t in self._reader.tensors}
        self.architecture = str(self.value("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            raise InputError(
                f"{path}: general.architecture: found {self.architecture!r}, read are {', '.join(ARCHITECTURES)}"
            )
        self.spec = self._spec()

    @property
    def source(self) -> str:
        return str(self.path)

    def value(self, key: str, default: Any = None) -> Any:
        """A value of the metadata, `{arch}` in its name standing for the architecture.

        Raises:
            InputError: it is missing and has no default.
        """
        name = key.replace("{arch}", getattr(self, "architecture", ""))
        field = self._reader.fields.get(name)
        if field is not None:
            return field.contents()
        if default is None:
            raise InputError(f"{self.path}: metadata {name}: is required and missing")
        return default

    def _number(self, key: str, default: float | None = None) -> Any:
        value = self.value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{self.path}: metadata {key}: found {value!r}, but one number is needed")
        return value

    def _spec(self) -> ModelSpec:
        """Dimensions as the metadata state them; a model of the catalog is known by them and gets its name."""
        number = self._number
        hidden, heads = number("{arch}.embedding_length"), number("{arch}.attention.head_count")
        if heads < 1:
            raise InputError(f"{self.path}: metadata attention.head_count: found {heads}, at least 1 is needed")
        experts = number("{arch}.expert_count", 0)
        if experts and self.architecture == "llama":
            raise InputError(f"{self.path}: llama with {experts} experts (Mixtral) is not read")
        if number("{arch}.attention.sliding_window", 0):
            raise InputError(f"{self.path}: sliding-window attention is not modelled")
        head_dim = number("{arch}.attention.key_length", hidden // heads)
        rotated = number("{arch}.rope.dimension_count", head_dim)
        if rotated != head_dim:
            raise InputError(
                f"{self.path}: rope.dimension_count: found {rotated}, but whole heads ({head_dim}) are rotated"
            )
        if "token_embd.weight" not in self._shapes:
            raise InputError(f"{self.path}: token_embd.weight: is missing among {len(self._shapes)} tensors")
        fields = {
            "hidden_size": hidden,
            "intermediate_size": number("{arch}.feed_forward_length", 0),
            "num_layers": number("{arch}.block_count"),
            "num_heads": heads,
            "num_kv_heads": number("{arch}.attention.head_count_kv", heads),
            "head_dim": head_dim,
            "vocab_size": self._shapes["token_embd.weight"][0],
            "tie_embeddings": "output.weight" not in self._shapes,
            "qk_norm": self.architecture in ("qwen3", "qwen3moe"),
            "attention_bias": "blk.0.attn_q.bias" in self._shapes,
            "rope_theta": _short(number("{arch}.rope.freq_base", 10000.0)),
            "rms_norm_eps": _short(number("{arch}.attention.layer_norm_rms_epsilon")),
            "max_position_embeddings": number("{arch}.context_length"),
            "num_experts": experts,
            "num_experts_per_tok": number("{arch}.expert_used_count") if experts else 0,
            "moe_intermediate_size": number("{arch}.expert_feed_forward_length") if experts else 0,
            "architecture": ARCHITECTURES[self.architecture],
            "rope_scaling": self._rope_scaling(),
        }
        try:
            spec = ModelSpec(name=self.path.stem, **fields)
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.path}: {error}") from None
        known = (s for s in CATALOG.values() if all(getattr(s, key) == value for key, value in fields.items()))
        return next(known, spec)

    def _rope_scaling(self) -> dict[str, Any] | None:
        if _ROPE_FACTORS in self._shapes:
            factors = {t.name: t for t in self._reader.tensors}[_ROPE_FACTORS]
            return {"rope_type": "factors", "factors": tuple(_short(x) for x in factors.data.tolist())}
        kind = str(self.value("{arch}.rope.scaling.type", "none"))
        if kind == "none":
            return None
        return {"rope_type": kind, "factor": self._number("{arch}.rope.scaling.factor", 1.0)}

    def tensors(self) -> dict[str, Stored]:
        """Every tensor by Hugging Face's name; read as float32 when asked for.

        Raises:
            InputError: a tensor that no decoder here has a place for.
        """
        heads = {"attn_q": self.spec.num_heads, "attn_k": self.spec.num_kv_heads}
        found: dict[str, Stored] = {}
        experts: dict[str, dict[str, Any]] = {}
        for tensor in self._reader.tensors:
            name, shape = tensor.name, self._shapes[tensor.name]
            if name == _ROPE_FACTORS:
                continue
            if name in _WHOLE:
                found[_WHOLE[name]] = Stored(shape, _reading(tensor))
                continue
            prefix, number, part, kind = (*name.split("."), "", "", "")[:4]
            at = f"model.layers.{number}"
            if prefix == "blk" and part in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps") and kind == "weight":
                experts.setdefault(at, {})[part] = tensor
            elif prefix == "blk" and part in _LAYER:
                swapped = heads.get(part) if self.architecture == "llama" else None
                found[f"{at}.{_LAYER[part]}.{kind}"] = Stored(shape, _reading(tensor, swapped))
            else:
                raise InputError(f"{self.path}: {name}: no decoder here has a place for it")
        for at, parts in experts.items():
            found |= self._experts(f"{at}.mlp.experts", parts)
        return found

    def _experts(self, at: str, parts: dict[str, Any]) -> dict[str, Stored]:
        """Gates and ups of all experts `(E, I, H)` as one tensor `(E, 2 I, H)`."""
        gate, up, down = (parts.get(f"ffn_{part}_exps") for part in ("gate", "up", "down"))
        if gate is None or up is None or down is None or self._shapes[gate.name] != self._shapes[up.name]:
            raise InputError(
                f"{self.path}: {at}: gate, up and down of all experts are needed, found {', '.join(parts)}"
            )
        experts, width, hidden = self._shapes[gate.name]

        def gate_up() -> torch.Tensor:
            return torch.cat([_reading(gate)(), _reading(up)()], dim=1)

        return {
            f"{at}.gate_up_proj": Stored((experts, 2 * width, hidden), gate_up),
            f"{at}.down_proj": Stored(self._shapes[down.name], _reading(down)),
        }


def _reading(tensor: Any, swapped_heads: int | None = None) -> Callable[[], torch.Tensor]:
    """Reads a tensor as float32. swapped_heads: so many heads whose rows alternate between the halves; they are put back."""

    def read() -> torch.Tensor:
        values = torch.from_numpy(np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        if swapped_heads is None:
            return values
        pairs = values.view(swapped_heads, -1, 2, *values.shape[1:])
        return pairs.transpose(1, 2).reshape(values.shape)

    return read


def _short(value: float) -> float:
    """The shortest decimal of a float32: 9.999999747378752e-06 was written as 1e-5."""
    return float(str(np.float32(value)))
