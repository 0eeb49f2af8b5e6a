"""Which model is served: the dimensions that decide its memory and its arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from scenarios.errors import InputError, unknown

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of one value by the name of its precision."""

MOST_DEVICES = 1024
"""No replica is split over more."""


@dataclass(frozen=True)
class ModelSpec:
    """A decoder of the Llama and Qwen family: pre-norm, grouped-query attention, rotary positions, gated feed-forward.

    Args:
        intermediate_size: width of the dense feed-forward; unused where there are experts.
        qk_norm: queries and keys are normalised per head (Qwen3).
        attention_bias: biases on the query, key and value projections (Qwen2).
        num_experts: routed experts of every layer, 0 for a dense model.
        architecture: the class name that Hugging Face gives it.
        rope_scaling: as in Hugging Face's config, None for plain rotary positions.
    """

    name: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tie_embeddings: bool = False
    qk_norm: bool = False
    attention_bias: bool = False
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 8192
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    architecture: str = "LlamaForCausalLM"
    rope_scaling: Mapping[str, Any] | None = field(default=None, hash=False)

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=False, allow_inf_nan=False)

    def __post_init__(self) -> None:
        sizes = ("hidden_size", "num_layers", "num_heads", "num_kv_heads", "head_dim", "vocab_size")
        for name in (*sizes, "max_position_embeddings", "rope_theta", "rms_norm_eps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} of {self.name} must be above 0, found {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.num_experts:
            if not 1 <= self.num_experts_per_tok <= self.num_experts:
                raise ValueError(
                    f"num_experts_per_tok must be 1 to {self.num_experts}, found {self.num_experts_per_tok}"
                )
            if self.moe_intermediate_size < 1:
                raise ValueError("moe_intermediate_size must be above 0 where there are experts")
        elif self.intermediate_size < 1:
            raise ValueError(f"intermediate_size must be above 0, found {self.intermediate_size}")

    @property
    def q_size(self) -> int:
        """Width of all query heads."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads, or of all value heads."""
        return self.num_kv_heads * self.head_dim

    def _attention_parameters(self) -> int:
        bias = self.q_size + 2 * self.kv_size if self.attention_bias else 0
        norms = 2 * self.head_dim if self.qk_norm else 0
        return self.hidden_size * (2 * self.q_size + 2 * self.kv_size) + bias + norms

    def _layer_parameters(self, experts: int) -> int:
        """Of one layer, with so many of its experts."""
        if self.num_experts:
            router = self.hidden_size * self.num_experts
            feed_forward = router + experts * 3 * self.hidden_size * self.moe_intermediate_size
        else:
            feed_forward = 3 * self.hidden_size * self.intermediate_size
        return self._attention_parameters() + feed_forward + 2 * self.hidden_size

    def parameters(self) -> int:
        """All weights, tied ones counted once: the published total."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2)
        return embeddings + self.num_layers * self._layer_parameters(self.num_experts) + self.hidden_size

    def active_parameters(self) -> int:
        """Weights that one token passes through: the experts it is routed to, all else whole."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2)
        return embeddings + self.num_layers * self._layer_parameters(self.num_experts_per_tok) + self.hidden_size

    def weight_bytes(self, dtype: str = "bfloat16") -> float:
        """Memory of the weights. Below two bytes a value, embeddings and output head stay in bfloat16, as engines keep them."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2)
        return (self.parameters() - embeddings) * BYTES[dtype] + embeddings * max(BYTES[dtype], 2.0)

    def kv_bytes_per_token(self, dtype: str = "bfloat16", tensor_parallel_size: int = 1) -> float:
        """Keys and values of one token in every layer, as each device of a tensor-parallel group holds them."""
        return 2.0 * self.num_layers * self.kv_heads_of_rank(tensor_parallel_size) * self.head_dim * BYTES[dtype]

    def kv_heads_of_rank(self, tensor_parallel_size: int) -> int:
        """KV heads on each device of a tensor-parallel group: one at least, so beyond `num_kv_heads` devices they are copied."""
        return max(1, self.num_kv_heads // tensor_parallel_size)

    def tensor_parallel_sizes(self) -> tuple[int, ...]:
        """Group sizes that split the query heads evenly, and split or copy the KV heads evenly."""
        heads, kv_heads = self.num_heads, self.num_kv_heads
        return tuple(
            size
            for size in range(1, min(heads, MOST_DEVICES) + 1)
            if heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)
        )

    def attention_flops(self, pairs: float) -> float:
        """FLOP of scores and weighted values for so many (query, key) pairs, in all layers."""
        return 4.0 * self.num_layers * self.q_size * pairs


_LLAMA_31_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def _llama31(name: str, hidden: int, feed_forward: int, layers: int, heads: int) -> ModelSpec:
    return ModelSpec(
        name, hidden, feed_forward, layers, heads, 8, 128, 128256,
        rope_theta=500000.0, rms_norm_eps=1e-5, max_position_embeddings=131072, rope_scaling=_LLAMA_31_ROPE,
    )  # fmt: skip


def _qwen3(
    name: str,
    hidden: int,
    feed_forward: int,
    layers: int,
    heads: int,
    kv_heads: int = 8,
    head_dim: int = 128,
    vocab: int = 151936,
    window: int = 40960,
    **more: Any,
) -> ModelSpec:
    more.setdefault("architecture", "Qwen3ForCausalLM")
    return ModelSpec(
        name, hidden, feed_forward, layers, heads, kv_heads, head_dim, vocab,
        qk_norm=True, rope_theta=1e6, rms_norm_eps=1e-6, max_position_embeddings=window, **more,
    )  # fmt: skip


CATALOG: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _llama31("Llama-3.1-8B", 4096, 14336, 32, 32),
        _llama31("Llama-3.1-70B", 8192, 28672, 80, 64),
        _qwen3("Qwen3-0.6B", 1024, 3072, 28, 16, tie_embeddings=True),
        _qwen3("Qwen3-8B", 4096, 12288, 36, 32),
        _qwen3("Qwen3-14B", 5120, 17408, 40, 40),
        _qwen3("Qwen3-32B", 5120, 25600, 64, 64),
        _qwen3(
            "Qwen3-30B-A3B", 2048, 6144, 48, 32, kv_heads=4,
            num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, architecture="Qwen3MoeForCausalLM",
        ),
        ModelSpec(
            "SmolLM2-135M", 576, 1536, 30, 9, 3, 64, 49152,
            tie_embeddings=True, rope_theta=100000.0, rms_norm_eps=1e-5, max_position_embeddings=8192,
        ),
        _qwen3("qwen3-tiny", 512, 1536, 8, 8, 4, 64, 32000, 8192, tie_embeddings=True),
    )
}  # fmt: skip
"""Published dimensions by name; `qwen3-tiny` is a Qwen3 shape small enough to run on one CPU core."""

_ALIASES = {"smollm2": "SmolLM2-135M", "smollm2-135m-instruct": "SmolLM2-135M"}
"""Other names of catalog entries, in lower case."""


_MLA = "multi-head latent attention (MLA) keeps compressed KV, not plain grouped-query attention"
_SLIDING = "sliding-window attention forgets KV that is assumed to be kept"
_HYBRID = "a hybrid of attention and state-space or linear layers does not keep KV in every layer"
_NOT_MODELLED = {
    "deepseek-v": _MLA,
    "deepseek-r1": _MLA,
    "kimi-k2": _MLA,
    "gemma": _SLIDING,
    "gpt-oss": _SLIDING,
    "mistral-7b-v0.1": _SLIDING,
    "mamba": _HYBRID,
    "jamba": _HYBRID,
    "bamba": _HYBRID,
    "qwen3-next": _HYBRID,
    "nemotron-h": _HYBRID,
}
"""Well-known families by the beginning of their names, and why they are refused rather than approximated."""


def model(name: str) -> ModelSpec:
    """The catalog's model of that name: case does not matter, nor an organisation before it (`Qwen/Qwen3-8B`).

    Raises:
        InputError: no such model; says which are known and which is nearest.
    """
    key = name.rsplit("/", 1)[-1].lower()
    key = _ALIASES.get(key, key).lower()
    for known, spec in CATALOG.items():
        if known.lower() == key:
            return spec
    for family, reason in _NOT_MODELLED.items():
        if key.startswith(family):
            raise InputError(f"model {name!r} is not modelled: {reason}")
    raise InputError(unknown("model", name, CATALOG) + ", or the path of a Hugging Face config.json")
