"""How much the device check measures, and the device with the one engine that its memory holds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from calibration.measure import Grid
from scenarios.hardware import hardware
from scenarios.models import ModelSpec, model
from serving.config import EngineConfig
from sim.roofline import Roofline

if TYPE_CHECKING:
    from gpu_backend.gpu.engine import GpuEngine

PRECISIONS = ("int8", "int4", "auto")
"""Of weights; the last one's engine stays in memory for what comes after the step times."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    models: their step times; the last is calibrated and run live. decodes: `(batch, context)`. prefills: tokens. mixed:
    `(tokens, their context, decodes, their context)`. rounds: of the grid, beside the one that warms up. lengths: mean of the
    prompts and answers of the live run, rate: of their arrivals, per second.
    """

    models: tuple[ModelSpec, ...]
    engine: EngineConfig
    decodes: tuple[tuple[int, int], ...]
    prefills: tuple[int, ...]
    mixed: tuple[tuple[int, int, int, int], ...]
    grid: Grid
    rounds: int
    requests: int
    lengths: tuple[int, int]
    rate: float
    copy_bytes: int
    matmul: int
    hardware: str


FULL = Size(
    models=(model("Qwen3-0.6B"), model("Llama-3.1-8B")),
    engine=EngineConfig(40_000, max_model_len=8192, max_num_seqs=128, max_num_batched_tokens=8192),
    decodes=tuple((batch, context) for context in (1024, 4096) for batch in (1, 8, 32, 64, 128)),
    prefills=(512, 2048, 8192),
    mixed=((480, 0, 32, 1024), (512, 2048, 64, 4096), (2016, 0, 32, 1024)),
    grid="standard", rounds=4,
    requests=240, lengths=(600, 120), rate=20.0,
    copy_bytes=4 << 30, matmul=8192, hardware="H200",
)  # fmt: skip

_TINY = ModelSpec("device-check-tiny", 64, 128, 2, 4, 2, 64, 512, qk_norm=True, architecture="Qwen3ForCausalLM")
REDUCED = Size(
    models=(_TINY,),
    engine=EngineConfig(129, max_model_len=256, max_num_seqs=8, max_num_batched_tokens=128),
    decodes=((1, 32), (8, 100)), prefills=(16, 64), mixed=((16, 8, 4, 32),),
    grid="quick", rounds=2,
    requests=25, lengths=(40, 8), rate=20.0,
    copy_bytes=32 << 20, matmul=512, hardware="cpu",
)  # fmt: skip
"""What runs in CI, to know that all of it works before a GPU is at hand."""


class Lab:
    """The device, and the one engine that its memory holds at a time."""

    def __init__(self, device: str, size: Size) -> None:
        from gpu_backend.checks import ceilings

        self.device, self.size = device, size
        self.is_there: bool = ceilings.is_there(device)
        self.kernels = "triton" if device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1" else "torch"
        self.cost = {spec.name: Roofline(spec, hardware(size.hardware)) for spec in size.models}
        self.compiled = False  # whether the kernels were, before they are needed
        self._held: tuple[str, str] | None = None
        self._engine: GpuEngine | None = None

    @property
    def absent(self) -> str | None:
        """Why nothing can be measured here, None if it can."""
        return None if self.is_there else f"there is no {self.device} device here"

    def engine(self, spec: ModelSpec, precision: str) -> GpuEngine:
        """The engine of that model with weights in that precision; the one before it is dropped."""
        if self._engine is None or self._held != (spec.name, precision):
            from gpu_backend.checks.ceilings import release
            from gpu_backend.gpu.engine import GpuEngine

            self._engine = self._held = None
            release()
            # On a CPU the references: a model interpreted takes minutes.
            kernels = "triton" if self.device == "cuda" else "torch"
            self._engine = GpuEngine(spec, self.size.engine, device=self.device, dtype=precision, kernels=kernels)
            self._held = (spec.name, precision)
        return self._engine

    def engine_seconds(self, spec: ModelSpec, precision: str) -> float:
        """What building the engine takes: weights, all kernels, graphs."""
        if self._held == (spec.name, precision):
            return 0.0
        if self.device != "cuda":
            return 0.5
        return 7.0 if self.compiled else 25.0
