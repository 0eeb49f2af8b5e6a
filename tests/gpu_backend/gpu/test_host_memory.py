"""KV that was in the host's memory is the KV that was computed (law 14), on the GPU engine; on a CPU its kernels are torch's."""

from __future__ import annotations

from typing import Any

import pytest

from gpu_backend.gpu.engine import GpuEngine
from serving.config import EngineConfig
from tests.gpu_backend.host_memory import (
    OFFLOADING,
    ROOMY,
    SWAPPING,
    fetches_without_a_trace,
    swaps_without_a_trace,
)
from tests.gpu_backend.shapes import QWEN3


def engine(settings: dict[str, Any], kv_dtype: str = "float32", graphs: bool = False) -> GpuEngine:
    config = EngineConfig(**settings)
    return GpuEngine(QWEN3, config, device="cpu", kernels="torch", dtype="float32", kv_dtype=kv_dtype, graphs=graphs)


@pytest.mark.parametrize("kv_dtype", ["float32", "fp8"])
def test_swapping_out_and_in_changes_no_logits(kv_dtype: str) -> None:
    swaps_without_a_trace(engine(SWAPPING, kv_dtype), engine(ROOMY, kv_dtype))


def test_swapping_among_captured_steps_changes_no_logits() -> None:
    """Block tables of who came back are written anew."""
    swaps_without_a_trace(engine(SWAPPING, graphs=True), engine(ROOMY, graphs=True))


def test_fetching_from_the_host_changes_no_logits() -> None:
    fetches_without_a_trace(engine(OFFLOADING), engine(ROOMY))
