"""The hardware clock: a real decoder engine that runs the scheduler's plans. Needs the `gpu` extra (torch, numba)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError

if TYPE_CHECKING:
    from gpu_backend.cpu.engine import CpuEngine
    from scenarios.models import ModelSpec
    from serving.config import EngineConfig

DEVICES = ("cpu",)


def make_engine(device: str, model_spec: ModelSpec, engine_config: EngineConfig, **options: Any) -> CpuEngine:
    """The engine of a device; `options` go to its class (`CpuEngine`: dtype, kv_dtype, seed, threads, clock).

    Raises:
        InputError: torch is missing, there is no such device, or nothing runs on it yet.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        raise InputError(
            f"executing needs the real engine, and {error.name} is not installed: pip install 'servetwin[gpu]'"
        ) from None
    if device == "cuda":
        found = "has no CUDA device" if not torch.cuda.is_available() else "has one, but its engine is not written yet"
        raise InputError(f"--device: found cuda; this machine {found}. Allowed: {', '.join(DEVICES)}")
    if device not in DEVICES:
        raise InputError(f"--device: found {device}. Allowed: {', '.join(DEVICES)}")
    from gpu_backend.cpu.engine import CpuEngine

    return CpuEngine(model_spec, engine_config, **options)
