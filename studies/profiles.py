"""Measuring this machine's step costs for a scenario, all at once or in rounds between other work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from calibration.calibrate import Calibration
from scenarios.schema import Scenario
from sim.profile import Profile
from studies.run import Progress

if TYPE_CHECKING:
    from gpu_backend.engine import CpuEngine

FOLDER = Path("out/profiles")
Grid = Literal["quick", "standard"]


def calibration(scenario: Scenario, engine: CpuEngine, grid: Grid = "standard", name: str | None = None) -> Calibration:
    """A calibration of `engine` over the step shapes that the scenario can ask for; nothing is measured yet."""
    model = scenario.model_spec.name
    return Calibration(
        engine,
        name=name or f"{model} on this {engine.info()['device']}",
        model=model,
        engine=scenario.engine_config(),
        shapes=grid,
        seed=scenario.seed,
    )


def measured(
    scenario: Scenario,
    engine: CpuEngine,
    *,
    grid: Grid = "standard",
    repeats: int = 5,
    name: str | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Measures each shape `repeats` times after a warm-up and fits a profile."""

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress("calibrating", done / total)

    return calibration(scenario, engine, grid, name).run(repeats, tell)
