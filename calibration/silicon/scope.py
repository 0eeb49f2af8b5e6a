"""What of the measured points can be simulated, with which serving profile, and which are left out of a judgement by name.

Three populations share the file. They were measured by other people with other clients, so that each has a serving profile of
its own; a wrong one costs more than wrong kernels would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from calibration.operators import aiconfigurator
from calibration.silicon.points import Point
from scenarios import hardware as hardware_catalog
from scenarios import models as model_catalog
from scenarios import serving_profile
from scenarios.hardware import HardwareSpec
from scenarios.models import ModelSpec

INFERENCEMAX, GAP_ANALYSIS, GTL = "InferenceMAX", "gap analysis", "gtl"

_DATED = re.compile(r"source_file=\d{4}-\d\d-\d\d\.csv|db-dump/")


def population_of(point: Point) -> str:
    """Who measured the point, from where the row says it comes from."""
    if _DATED.search(point.source):
        return INFERENCEMAX
    return GTL if "gtl_" in point.source else GAP_ANALYSIS


def profile_of(point: Point) -> str:
    """The name of its serving profile."""
    population = "inferencemax" if population_of(point) == INFERENCEMAX else "gap-analysis"
    return f"{population}-{point.engine}"


def replicas_of(point: Point) -> int:
    """Engines side by side: some rows count the clients of all of them, and the batch of each."""
    if point.concurrency is None or point.batch_size is None or point.concurrency % point.batch_size:
        return 1
    return point.concurrency // point.batch_size


# -- models and devices -----------------------------------------------------------------------------------------------

_MODELS = {
    "Llama-3.1-70B": "Llama-3.1-70B",
    "Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "Llama-3.1-8B-Instruct-FP8": "Llama-3.1-8B",
    "Qwen3-32B": "Qwen3-32B",
    "Qwen3-32B-NVFP4": "Qwen3-32B",
}

_LARGE_MODELS = {
    # Published dimensions; both keep plain grouped-query KV in every layer.
    "Qwen3-235B-A22B-FP8": ModelSpec(
        "Qwen3-235B-A22B", 4096, 12288, 94, 64, 4, 128, 151936,
        qk_norm=True, rope_theta=1e6, max_position_embeddings=40960,
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536, architecture="Qwen3MoeForCausalLM",
    ),
    "MiniMax-M2.5": ModelSpec(
        "MiniMax-M2.5", 3072, 8192, 62, 48, 8, 128, 200064,
        qk_norm=True, rope_theta=5e6, max_position_embeddings=196608,
        num_experts=256, num_experts_per_tok=8, moe_intermediate_size=1536, architecture="MiniMaxM2ForCausalLM",
    ),
}  # fmt: skip

_FAMILIES = {
    "DeepSeek": "multi-head latent attention (MLA) is not modelled",
    "Kimi": "multi-head latent attention (MLA) is not modelled",
    "GLM-5": "multi-head latent attention with sparse selection is not modelled",
    "gpt-oss": "sliding-window attention is not modelled",
    "Qwen3.5": "linear attention layers (a hybrid model) are not modelled",
}

_SYSTEMS = {system: device for device, system in aiconfigurator.SYSTEMS.items()}

_SHEETS = {
    # Memory as the driver reports it; peaks dense, from the vendor's sheets.
    "gb200": HardwareSpec(
        "GB200", 198674743296, 8.0e12, {"bfloat16": 2.5e15, "float16": 2.5e15, "fp8": 5.0e15}, large_batches=True
    ),
    "b300_sxm": HardwareSpec(
        "B300", 288400343040, 7.75e12, {"bfloat16": 2.25e15, "float16": 2.25e15, "fp8": 4.5e15}, large_batches=True
    ),
}


def model_of(point: Point) -> ModelSpec | None:
    """The dimensions of its model, None where it is not one that can be simulated."""
    name = point.short_model
    if name in _MODELS:
        return model_catalog.model(_MODELS[name])
    return _LARGE_MODELS.get(name)


def hardware_of(point: Point) -> HardwareSpec | None:
    """The sheet of its device, None for unknown ones."""
    if point.system in _SYSTEMS:
        return hardware_catalog.hardware(_SYSTEMS[point.system])
    return _SHEETS.get(point.system)


# -- what is not run --------------------------------------------------------------------------------------------------


def why_not(point: Point) -> str | None:
    """Why the point is not simulated, None if it is. The first reason that applies, the model's own before how it was run."""
    for family, reason in _FAMILIES.items():
        if point.short_model.startswith(family):
            return reason
    if model_of(point) is None:
        return f"the dimensions of {point.short_model} are not known here"
    if point.disaggregated:
        return "disaggregated prefill and decode is not modelled"
    if "nvfp4" in (point.gemm, point.moe):
        return "NVFP4 weights are not modelled"
    if "int4_wo" in (point.gemm, point.moe):
        return "INT4 weights are not modelled"
    if point.data_parallel > 1 or _experts_over(point) > point.tensor_parallel:
        return "data-parallel attention is not modelled"
    if point.expert_parallel > 1:
        return "expert parallelism is not modelled"
    if point.pipeline_parallel > 1:
        return "pipeline parallelism is not modelled"
    if point.concurrency is None:
        return "the row says no concurrency"
    if hardware_of(point) is None:
        return f"there is no sheet of {point.system} here"
    return None


def _experts_over(point: Point) -> int:
    """Devices that experts are spread over; 1 for dense models, where the columns mean nothing."""
    model = model_of(point)
    return point.expert_tensor_parallel * point.expert_parallel if model is not None and model.num_experts else 1


# -- what is left out of a judgement ----------------------------------------------------------------------------------


class Exclusion(NamedTuple):
    """Points that are simulated and reported, but whose own measurement is in doubt: figures are given with and without them.

    The serving profile of that name says why.
    """

    name: str
    profile: str
    applies: Callable[[Point], bool]

    @property
    def why(self) -> str:
        return serving_profile.load(self.profile).exclusions[self.name]


EXCLUSIONS = (
    Exclusion(
        "Llama-8B-FP8 on H200",
        "gap-analysis-vllm",
        lambda p: p.short_model == "Llama-3.1-8B-Instruct-FP8" and p.system == "h200_sxm" and p.engine == "vllm",
    ),
    Exclusion(
        "gtl rows of 4000 in, 1000 out",
        "gap-analysis-vllm",
        lambda p: population_of(p) == GTL and (p.input_tokens, p.output_tokens) == (4000, 1000),
    ),
    Exclusion(
        "Llama-70B on H100 at TP 2",
        "inferencemax-vllm",
        lambda p: p.short_model == "Llama-3.1-70B" and p.system == "h100_sxm" and p.tensor_parallel == 2,
    ),
    Exclusion(
        "Qwen3-32B at TP 1",
        "gap-analysis-sglang",
        lambda p: p.short_model == "Qwen3-32B" and p.engine == "sglang" and p.tensor_parallel == 1,
    ),
)
"""By name, so that every judgement is given with and without them."""


def exclusion_of(point: Point) -> Exclusion | None:
    """The exclusion that names this point, None if none does."""
    return next((exclusion for exclusion in EXCLUSIONS if exclusion.applies(point)), None)
