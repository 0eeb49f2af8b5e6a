"""What the dashboard's processes do about cost profiles: hold one against a scenario, measure this machine, import a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dashboard.bounds import shortened
from scenarios import InputError
from sim.profiles import load_profile
from studies import calibrating
from studies import run as runs
from studies.aspects.step_costs import profile_cost
from studies.profiles.coverage import Coverage, coverage
from studies.profiles.importing import Options, import_profile

if TYPE_CHECKING:
    from dashboard.worker import Tell
    from scenarios import Scenario

MOST_REQUESTS = 20_000
"""Of a scenario that is held against a profile: its steps are looked at, and the first hours show them all."""


@dataclass(frozen=True)
class Held:
    """A profile beside a scenario. found: how far a run stays inside it; None where nothing ran. requests: so many were sent."""

    found: Coverage | None
    requests: int


def hold(tell: Tell, profile: str, scenario: Scenario) -> Held:
    """How far a run of the scenario stays inside a profile. profile: a shipped name, or a file.

    Raises:
        InputError: the profile is of something else than the scenario, which the message names.
    """
    tell("simulating", 0.0)
    cost = profile_cost(load_profile(profile), scenario)
    run = runs.simulate(shortened(scenario, MOST_REQUESTS), cost=cost, progress=tell)
    return Held(coverage(run.records, cost), int(run.records.submitted.sum()))


def measure(
    tell: Tell, model: str, grid: Literal["quick", "standard"], repeats: int, overrides: Sequence[str], file: Path
) -> Path:
    """Measures this machine and writes the profile; its file."""
    tell("loading the engine", 0.0)
    profile = calibrating.measure_here(
        model, overrides=overrides, grid=grid, repeats=repeats, name=file.stem,
        progress=lambda _, share: tell("measuring", share),
    )  # fmt: skip
    return _written(profile.save, file)


def bring(tell: Tell, source: Path | None, kind: str, options: Options, name: str, file: Path) -> Path:
    """Imports what others measured and writes the profile; its file.

    Raises:
        InputError: of `import_profile`, with files called as they were where they came from.
    """
    tell("reading", 0.0)
    try:
        profile = import_profile(source, kind, name=name, options=options)
    except InputError as error:
        said = str(error)
        if source is not None:
            above = source if source.is_dir() else source.parent
            said = said.replace(f"{above}/", "").replace(str(above), "the uploaded files")
        raise InputError(said) from None
    tell("writing", 0.9)
    return _written(profile.save, file)


def _written(save: Callable[[Path], object], file: Path) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save(file)
    except OSError as error:
        raise InputError(f"{file.name}: cannot be written in {file.parent} ({error.strerror})") from None
    return file
