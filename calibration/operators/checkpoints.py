"""How checkpoints of a precision scale their weights and activations, which no precision's name says."""

from __future__ import annotations

from typing import TypedDict

from scenarios.models import ModelSpec


class Checkpoint(TypedDict):
    """What `compose` has to know of a checkpoint beside its precision."""

    gemm_dtype: str | None
    expert_dtype: str | None
    activation_scales: str


def checkpoint(model: ModelSpec, dtype: str, engine: str = "vllm", *, in_blocks: bool | None = None) -> Checkpoint:
    """How a published checkpoint scales.

    FP8 ones of dense models have static scales, which compiled engines apply in the kernel before a GEMM. Those in blocks find the
    scales of activations for every GEMM. vLLM's table of block-scaled GEMMs was measured launch by launch, which small ones are
    bound by, so that there only the experts, whose table was not, are taken in blocks.

    Args:
        in_blocks: whether FP8 weights are scaled in blocks; those of mixtures are, if not given.
    """
    if dtype != "fp8":
        return {"gemm_dtype": None, "expert_dtype": None, "activation_scales": "dynamic"}
    blocks = bool(model.num_experts) if in_blocks is None else in_blocks
    return {
        "gemm_dtype": "fp8_block" if blocks and engine != "vllm" else None,
        "expert_dtype": "fp8_block" if blocks and model.num_experts else None,
        "activation_scales": "dynamic" if blocks else "fused",
    }
