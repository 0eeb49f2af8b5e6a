"""Compiles what a run is going to need, in many processes at once.

A kernel takes Triton a second or more on one core, anew for every dtype, head size and kind of integer: minutes for all of them. What one
process has compiled is on disk for the others. Nothing here decides anything: what a process fails at is met again by the run itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import time
from collections.abc import Sequence
from typing import Any

from scenarios.models import ModelSpec
from serving.config import EngineConfig


@dataclasses.dataclass(frozen=True)
class Job:
    """What one process runs once: every `parts`-th of the checks or of the timings from number `part` on, or the start of an
    engine of one layer of a model, whose kernels are those of all layers."""

    kind: str  # checks, timings or engine
    part: int = 0
    parts: int = 1
    model: ModelSpec | None = None
    config: EngineConfig | None = None
    precision: str = "auto"

    def run(self, device: str, kernels: str) -> None:
        """Raises what went wrong last, when all has been tried."""
        if self.kind == "engine":
            assert self.model is not None
            assert self.config is not None
            from gpu_backend.gpu.engine import GpuEngine

            one = dataclasses.replace(self.model, num_layers=1)
            GpuEngine(one, self.config, device=device, dtype=self.precision, kernels=kernels)
            return
        import torch

        raised = None
        for item in itertools.islice(_items(self.kind, small=device == "cpu"), self.part, None, self.parts):
            try:
                if self.kind == "checks":
                    item.run(device, kernels, 0)
                else:
                    item.make(torch.device(device), kernels).ours()
            except Exception as error:  # the others are compiled nonetheless
                raised = error
        if raised is not None:
            raise raised


def _items(kind: str, small: bool) -> Any:
    if kind == "checks":
        from gpu_backend.checks.kernel_cases import checks

        return checks("small" if small else "full")
    from gpu_backend.checks.kernel_times import timings

    return timings(small)


def jobs(models: Sequence[ModelSpec], config: EngineConfig, precisions: Sequence[str], spread: int) -> list[Job]:
    """All that the device check runs, in `spread` parts for the checks, half as many for the timings, and one for each engine."""
    few = max(1, spread // 2)
    return [
        *(Job("engine", model=m, config=config, precision=p) for m in models for p in precisions),
        *(Job("checks", part, spread) for part in range(spread)),
        *(Job("timings", part, few) for part in range(few)),
    ]


def compile_in_parallel(
    asked: Sequence[Job], device: str, kernels: str = "triton", most_seconds: float = 90.0
) -> dict[str, object]:
    """Runs each job in a process of its own and ends those that take longer. JSON-able: seconds, processes, and how many of them
    failed or were ended."""
    begin = time.monotonic()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=job.run, args=(device, kernels), daemon=True) for job in asked]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(max(0.0, begin + most_seconds - time.monotonic()))
        late = [process for process in processes if process.is_alive()]
    finally:
        for process in processes:
            if process.is_alive():
                process.terminate()
                process.join()
    return {
        "seconds": time.monotonic() - begin,
        "processes": len(processes),
        "failed": sum(process.exitcode != 0 for process in processes) - len(late),
        "ended": len(late),
    }
