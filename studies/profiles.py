"""A cost profile of this machine for one scenario: measured once, kept, and used again while nothing that matters changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from scenarios.errors import InputError
from scenarios.schema import Scenario
from sim.profile import Profile, load_profile
from studies.run import Progress

if TYPE_CHECKING:
    from gpu_backend.engine import CpuEngine

CACHE = Path("out/profiles")


def measured(
    scenario: Scenario,
    engine: CpuEngine,
    *,
    grid: Literal["quick", "standard"] = "standard",
    repeats: int = 5,
    name: str | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Measures step costs of the scenario's model on `engine` and fits a profile to them."""
    from calibration.calibrate import calibrate

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress("calibrating", done / max(total, 1))

    model = scenario.model_spec.name
    return calibrate(
        engine,
        name=name or f"{model} on this {engine.info()['device']}",
        model=model,
        engine=scenario.engine_config(),
        shapes=grid,
        repeats=repeats,
        seed=scenario.seed,
        progress=tell,
    )


def kept(
    scenario: Scenario,
    engine: CpuEngine,
    *,
    folder: Path = CACHE,
    grid: Literal["quick", "standard"] = "standard",
    repeats: int = 5,
    progress: Progress | None = None,
) -> Profile:
    """The profile that was measured for this engine before, else a new one, which is kept in `folder`."""
    path = folder / f"{scenario.model_spec.name}-{_key(scenario, engine, grid, repeats)}.json"
    if path.is_file():
        try:
            return load_profile(path)
        except InputError:
            path.unlink()  # cut short, or of another version
    profile = measured(scenario, engine, grid=grid, repeats=repeats, progress=progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    profile.save(path)
    return profile


def _key(scenario: Scenario, engine: CpuEngine, grid: str, repeats: int) -> str:
    """Everything that step costs, or the shapes to measure, depend on."""
    config = scenario.engine_config()
    bounds = (config.max_num_batched_tokens, config.max_num_seqs, config.max_model_len, config.num_gpu_blocks)
    facts = [asdict(scenario.model_spec), engine.info(), bounds, config.block_size, grid, repeats]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]
