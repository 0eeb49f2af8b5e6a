"""A cell of a study, one point with one seed: what names it, and the row that it gives."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.errors import InputError
from scenarios.schema import Scenario
from studies.aspects import per_device
from studies.aspects.binding import binding
from studies.provenance import environment
from studies.results import Run
from studies.run import simulate, simulated_figures
from studies.sweeps.axes import Point
from studies.sweeps.study import Study

Row = dict[str, Any]
"""`point`, `seed`, `scenario_hash`, `error` (None or a sentence), `axis.*`, and figures of the summary by their keys."""


@dataclass(frozen=True)
class Cell:
    """One simulation of a study. small: as the study's `reduced` says."""

    study: Study
    point: Point
    seed: int
    small: bool = False

    def scenario(self) -> Scenario:
        """What is run.

        Raises:
            InputError: an axis leads to no field, or its value is not allowed there.
        """
        return self.study.scenario_of(self.point, self.seed, small=self.small)

    def key(self) -> str:
        """What names its result: `key_of` its scenario.

        Raises:
            InputError: as `scenario`.
        """
        return self.key_of(self.scenario())

    def key_of(self, scenario: Scenario) -> str:
        """SHA-256 (hex) of its scenario, of its values by axis, and of the version and the code that run it."""
        here = environment()
        told = {"scenario": scenario.hash(), "axes": dict(self.point.values)}
        told |= {name: here[name] for name in ("servetwin", "source")}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def cells(study: Study, *, small: bool = False) -> list[Cell]:
    """Every cell of a study, points in order, seeds within; small: of the points that something is expected of."""
    chosen = study.expected_points() if small else study.points()
    seeds = study.seed_list(small=small)
    return [Cell(study, point, seed, small) for point in chosen for seed in seeds]


def run(cell: Cell) -> tuple[Row, Run | None]:
    """Simulates a cell. What is wrong with its scenario becomes the row's `error`; then there is no run."""
    try:
        scenario = cell.scenario()
        done = simulate(scenario)
    except InputError as error:
        return failed(cell, str(error)), None
    return head(cell) | {"scenario_hash": scenario.hash()} | figures(done), done


def row(cell: Cell) -> Row:
    """The row of `run` alone, in half of the time where simulations are short."""
    try:
        scenario = cell.scenario()
        return head(cell) | {"scenario_hash": scenario.hash()} | figures_of(scenario)
    except InputError as error:
        return failed(cell, str(error))


def head(cell: Cell) -> Row:
    """What a row says of its cell."""
    found: Row = {"point": cell.point.index, "seed": cell.seed, "scenario_hash": None, "error": None}
    return found | {f"axis.{name}": value for name, value in cell.point.values.items()}


def failed(cell: Cell, why: str) -> Row:
    """The row of a cell without figures. Where the study's file lies is no part of it."""
    return head(cell) | {"error": why.removeprefix(f"{cell.study.source}: ")}


def figures(run: Run) -> Row:
    """Figures of a simulated run by key, those by device among them; of classes and tenants as `by_class.chat.mean_ttft_ms`. What binds
    stands under `binding.cause`, `binding.busy` and `binding.waiting`; of several pools there is no one cause."""
    assert run.scenario is not None
    return _told(run.summary, per_device.devices(run.scenario), run.info["binding"])


def figures_of(scenario: Scenario) -> Row:
    """`figures` of a simulation of a scenario, which is described no further."""
    if scenario.pools:
        return figures(simulate(scenario))
    summary, records = simulated_figures(scenario)
    bound = binding(records, scenario.engine_config(), None, summary["duration"])
    return _told(summary, per_device.devices(scenario), bound)


def _told(summary: Mapping[str, Any], devices: int, bound: Mapping[str, Any]) -> Row:
    found = dict(flat(summary)) | per_device.figures(summary, devices)
    return found | {f"binding.{name}": bound.get(name) for name in ("cause", "busy", "waiting")}


def flat(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Figures of a summary by key; of classes and tenants as `by_class.chat.mean_ttft_ms`."""
    for key, value in found.items():
        if key == "refused":
            continue
        if isinstance(value, Mapping):
            yield from flat(value, f"{above}{key}.")
        elif value is None or isinstance(value, bool | int | float | str):
            yield f"{above}{key}", value
