"""Measuring this machine's step costs for a scenario, all at once or in rounds between other work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import scenarios
from calibration.calibrate import Calibration
from calibration.measure import Grid
from scenarios.schema import Scenario
from sim.profile import Profile
from studies.progress import Progress
from studies.run import Clock

if TYPE_CHECKING:
    from gpu_backend.engine import Engine

FOLDER = Path("out/profiles")
YARDSTICK = "cpu-avx2-qwen3-tiny"
"""The shipped profile by which it is told beforehand how long a measurement takes."""


class Expected(NamedTuple):
    """What a measurement will be: step shapes, steps in all (the first round warms up), and about how many seconds."""

    shapes: int
    steps: int
    seconds: float


def scenario_of(model: str, overrides: Sequence[str] = ()) -> Scenario:
    """A scenario to calibrate `model` for when there is none: its engine's settings bound the step shapes that are measured.

    Raises:
        InputError: an unknown model, or an override that does not fit.
    """
    bounds = {"max_model_len": 2048, "max_num_seqs": 64, "max_num_batched_tokens": 1024, "num_gpu_blocks": 2049}
    workload = {"requests": 1, "arrivals": "all_at_once", "input": 16, "output": 2}
    document = {"name": "calibration", "model": model, "hardware": "cpu", "engine": bounds, "workload": workload}
    return scenarios.loads(json.dumps(document), source="calibrate", base=Path.cwd(), overrides=overrides)


def calibration(scenario: Scenario, engine: Engine, grid: Grid = "standard", name: str | None = None) -> Calibration:
    """A calibration of `engine` over the step shapes that the scenario can ask for; nothing is measured yet."""
    model = scenario.model.name
    return Calibration(
        engine,
        name=name or f"{model} on this {engine.info()['device']}",
        model=model,
        engine=scenario.engine_config(),
        shapes=grid,
        seed=scenario.seed,
    )


def expected(scenario: Scenario, grid: Grid = "standard", repeats: int = 5) -> Expected:
    """What `measured` will take: the steps of the shipped CPU profile, as many times longer as the model has more parameters."""
    from calibration.measure import grid as shapes_of
    from scenarios.hf_config import model_of
    from sim.profile_cost import ProfileCost
    from sim.profiles import load_profile

    known = load_profile(YARDSTICK)
    assert isinstance(known, Profile)
    cost, shapes = ProfileCost(known), shapes_of(scenario.engine_config(), grid)
    larger = scenario.model.parameters() / model_of(known.model).parameters()
    seconds = sum(cost.step_ns(shape) for shape in shapes) * 1e-9 * larger
    return Expected(len(shapes), len(shapes) * (repeats + 1), seconds * (repeats + 1))


def measured(
    scenario: Scenario,
    engine: Engine,
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


def measure_here(
    model: str,
    *,
    overrides: Sequence[str] = (),
    device: str = "cpu",
    clock: Clock = "device",
    grid: Grid = "standard",
    repeats: int = 5,
    name: str | None = None,
    progress: Progress | None = None,
) -> Profile:
    """A profile of this machine running `model`: everything that `servetwin calibrate` does but writing it.

    Args:
        overrides: of the engine, whose settings bound what is measured (`engine.max_num_seqs=8`).
        progress: told "calibrating" and the part that is done after each measured step; what it raises ends the measurement.

    Raises:
        InputError: an unknown model, an override that does not fit, a device that is not here, or no real engine is installed.
    """
    from studies.run import backend

    scenario = scenario_of(model, overrides)
    engine = backend(scenario, device, clock)
    return measured(
        scenario, engine, grid=grid, repeats=repeats, name=name or f"{scenario.model.name}-{device}", progress=progress
    )
