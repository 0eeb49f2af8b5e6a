"""What the dashboard's processes do about validations: execute the present scenario here and hold it against its simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import scenarios
import studies
from dashboard.bounds import shortened
from scenarios import InputError
from sim.profile import Profile
from sim.profile_cost import ProfileCost
from sim.profiles import load_profile
from studies import calibrating, validation
from studies import run as runs
from studies.validation import LEAST_ROUNDS, VARIANT_REPEATS
from studies.validations import made
from studies.validations.record import Validation

if TYPE_CHECKING:
    from dashboard.worker import Tell
    from scenarios import Scenario

MOST_REQUESTS = 500
"""Of an execution from a page."""
LARGEST = 2e9
"""Parameters of a model that a CPU executes in bearable time."""


@dataclass(frozen=True)
class Done:
    """A validation that was just made, and the folder that keeps it."""

    found: Validation
    folder: Path


def live(
    tell: Tell,
    scenario: Scenario,
    requests: int,
    repeats: int,
    grid: Literal["quick", "standard"],
    ranking: bool,
    folder: Path,
) -> Done:
    """Executes a scenario on the CPU engine, simulates it, and writes what came of it to `folder`.

    Raises:
        InputError: it cannot be executed here, as the message says.
    """
    asked = shortened(scenario, requests)
    count = len(scenarios.generate(asked).arrival_ns)
    if count > MOST_REQUESTS:
        raise InputError(
            f"workload: {count:,} requests, but at most {MOST_REQUESTS} are executed from a page; its arrivals say how many there are: "
            "shorten them on Explore, or use servetwin validate"
        )
    tell("loading the engine", 0.0)
    found = studies.validate(asked, repeats=repeats, grid=grid, ranking=ranking, progress=tell)
    tell("writing", 1.0)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        validation.write(found, folder)
    except OSError as error:
        raise InputError(f"{folder.name}: cannot be written in {folder.parent} ({error.strerror})") from None
    return Done(made.of_report(found, folder.name), folder)


def unfit(scenario: Scenario) -> str | None:
    """Why the CPU engine cannot execute a scenario, and what would; None where it can."""
    for view in scenario.of_pools():
        model, hardware = view.model, view.hardware
        if not hardware.is_cpu:
            return f"It runs on {hardware.name}, and this dashboard executes on its own CPU. On a machine with that device: `servetwin validate SCENARIO --device cuda`."
        if model.num_experts or model.parameters() > LARGEST:
            return f"{model.name} is too large for the CPU engine, which runs dense models of up to {LARGEST / 1e9:.0f} billion parameters."
        if view.engine.tensor_parallel_size > 1:
            return f"It spreads a model over {view.engine.tensor_parallel_size} devices, and an execution has one."
    return None


def seconds(
    scenario: Scenario, requests: int, repeats: int, grid: Literal["quick", "standard"], ranking: bool
) -> float:
    """About what `live` takes, by the shipped CPU profile.

    Raises:
        InputError: the scenario cannot be simulated.
    """
    asked = shortened(scenario, requests)
    once = _busy(asked.model_dump_json(), asked) if asked.workload.requests else 0.0
    variants = len(validation.variants_of(asked)) if ranking else 0
    measured = sum(calibrating.expected(view, grid, max(LEAST_ROUNDS, repeats)).seconds for view in asked.of_pools())
    return once * (repeats + variants * VARIANT_REPEATS) + measured


@lru_cache(maxsize=64)
def _busy_of(key: str) -> list[float]:
    return []


def _busy(key: str, scenario: Scenario) -> float:
    """Seconds of computing of one execution."""
    known = _busy_of(key)
    if not known:
        profile = load_profile(calibrating.YARDSTICK)
        assert isinstance(profile, Profile)
        views = scenario.of_pools()
        steps = runs.simulate(scenario, cost=[ProfileCost(profile) for _ in views]).records.steps
        larger = max(view.model.parameters() for view in views) / scenarios.load("demo").model.parameters()
        known.append(float((steps["end_ns"] - steps["start_ns"]).sum()) * 1e-9 * larger)
    return known[0]
