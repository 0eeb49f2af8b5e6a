"""The hardware clock: real decoder engines that run the scheduler's plans. Needs the `gpu` extra (torch, triton, numba)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError

if TYPE_CHECKING:
    from gpu_backend.engine import Engine
    from scenarios.models import ModelSpec
    from serving.config import EngineConfig

DEVICES = ("cpu", "cuda")


def make_engine(
    device: str, model_spec: ModelSpec, engine_config: EngineConfig, *, clock: str = "device", **options: Any
) -> Engine:
    """The engine of a device.

    Args:
        clock: `device` counts what the device works on a step (on a CPU: the computing thread), `wall` real time.
        options: of its class: `CpuEngine` or `GpuEngine` (dtype, kv_dtype, seed, answers, acceptance, draft and more).

    Raises:
        InputError: torch is missing, or there is no such device here.
    """
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"executing needs the real engine, and {error.name} is not installed: pip install 'servetwin[gpu]'"
        ) from None
    check_device(device)
    if device == "cpu":
        from gpu_backend.cpu.engine import CpuEngine

        return CpuEngine(model_spec, engine_config, clock="cpu" if clock == "device" else clock, **options)
    from gpu_backend.gpu.engine import GpuEngine

    return GpuEngine(model_spec, engine_config, clock=clock, **options)


def check_device(device: str) -> None:
    """Raises InputError for a device that this machine does not have."""
    import torch

    if device not in DEVICES:
        raise InputError(f"--device: found {device}. Allowed: {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device: found cuda, but torch {torch.__version__} sees no CUDA device here. Allowed: cpu")
