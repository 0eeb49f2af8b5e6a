"""A space of configurations: axes as in a study, over one scenario. Which fit, and what an hour of each costs before it is run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

import scenarios
from scenarios import documents
from scenarios.errors import InputError, unknown
from scenarios.load import Override
from scenarios.schema import Scenario
from studies.aspects.economics import tariff_of
from studies.sweeps import axes as study_axes
from studies.sweeps import study as studies_of
from studies.sweeps.axes import VARIANT, Axes, Point
from studies.sweeps.study import Study

FIELDS = ("axes", "set")
"""What a space file may say; the scenario comes from elsewhere."""


@dataclass(frozen=True)
class Candidate:
    """One configuration.

    scenario: None where it cannot be; `refused` then says why. usd_per_hour: of its devices, and of what they draw while idle, if
    energy is paid for: the least that an hour costs.
    """

    point: Point
    scenario: Scenario | None = None
    usd_per_hour: float | None = None
    refused: str = ""

    @property
    def name(self) -> str:
        """Its values, in words."""
        return str(self.point)


@dataclass(frozen=True)
class Dimension:
    """What can be chosen independently: an axis of a grid, or a whole group.

    name: of its axes. size: how many choices. ordered: numbers that rise, so that neighbours are alike.
    """

    name: str
    size: int
    ordered: bool
    _group: Axes = field(repr=False)
    _path: str | None = field(repr=False, default=None)

    def chosen(self, choice: int) -> Axes:
        """The same with that one value only."""
        if self._path is not None:
            return Axes(grid={self._path: [_listed(self._group, self._path)[choice]]})
        row = self._group.rows()[choice]
        if self._group.variants is not None:
            return Axes(variants={row[0]: self._group.variants[row[0]]})
        return Axes(grid={path: [value] for path, value in zip(self._group.names, row, strict=True)})


@dataclass(frozen=True)
class Space:
    """A scenario and the axes along which it may be chosen."""

    scenario: Scenario
    study: Study

    @property
    def source(self) -> str:
        """What messages call it."""
        return self.study.source

    @property
    def size(self) -> int:
        """How many configurations it has, those among them that do not fit."""
        return math.prod(group.size() for group in self.study.axes)

    def dimensions(self) -> list[Dimension]:
        """What can be chosen, the slowest first."""
        found = []
        for group in self.study.axes:
            if group.grid is not None:
                for path in group.names:
                    values = _listed(group, path)
                    found.append(Dimension(path, len(values), _rises(values), group, path))
            else:
                found.append(Dimension(", ".join(group.names), group.size(), False, group))
        return found

    def index(self, choices: Sequence[int]) -> int:
        """The place, among all, of the configuration of a choice in every dimension."""
        index = 0
        for dimension, choice in zip(self.dimensions(), choices, strict=True):
            index = index * dimension.size + choice
        return index

    def at(self, choices: Sequence[int]) -> Candidate:
        """The configuration of a choice in every dimension."""
        picked = [dimension.chosen(choice) for dimension, choice in zip(self.dimensions(), choices, strict=True)]
        (point,) = study_axes.points(picked)
        return self.candidate(replace(point, index=self.index(choices)))

    def candidates(self) -> Iterator[Candidate]:
        """All configurations, in the study's order."""
        for point in self.study.points():
            yield self.candidate(point)

    def candidate(self, point: Point) -> Candidate:
        """The configuration of a point. What cannot be, or has no price, is refused with its reason."""
        try:
            scenario = self.study.scenario_of(point, self.scenario.seed)
        except InputError as error:
            return Candidate(point, refused=str(error).removeprefix(f"{self.source}: scenario: "))
        usd = usd_per_hour(scenario)
        if not usd:
            why = f"{scenario.hardware.name} has no price; state one as prices.gpu_hour"
            return Candidate(point, refused=f"{self.source}: {point}: {why}")
        return Candidate(point, scenario, usd)


def usd_per_hour(scenario: Scenario) -> float:
    """What an hour of its devices costs while nothing runs, USD; 0 where nothing has a price."""
    tariff = tariff_of(scenario, None)
    return 0.0 if tariff is None else float(f"{float(tariff.idle_usd_per_ns.sum()) * 3600e9:.12g}")


def turned_away(scenario: Scenario) -> tuple[int, int]:
    """Requests of its workload that no empty engine of it could hold, and all of them."""
    workload = scenarios.generate(scenario)
    sizes = zip(workload.prompt_tokens.tolist(), workload.max_tokens.tolist(), strict=True)
    configs = [view.engine_config() for view in scenario.of_pools()]
    times = Counter(sizes)
    away = [size for size in times if all(config.why_it_can_never_run(*size) is not None for config in configs)]
    return sum(times[size] for size in away), times.total()


def read(file: str | Path, scenario: Scenario) -> Space:
    """The space of a file, around a scenario.

    Raises:
        InputError: there is none, or it is wrong.
    """
    path = Path(file)
    return space(documents.read_mapping(path), scenario, str(path))


def space(data: Mapping[str, Any], scenario: Scenario, source: str = "space") -> Space:
    """The space of a mapping (`axes`, `set`), around a scenario. source: what messages call it.

    Raises:
        InputError: names the field that is wrong, and what is allowed.
    """
    for key in data:
        if key in ("base", "scenario"):
            raise InputError(
                f"{source}: {key}: a space has none: it is around the scenario of the command; leave it out"
            )
        if key not in FIELDS:
            raise InputError(f"{source}: {unknown('field', key, FIELDS)}")
    if not data.get("axes"):
        raise InputError(
            f"{source}: axes: is required, such as 'axes: {{hardware: [H100, L40S], engine.tensor_parallel_size: [1, 2]}}'"
        )
    whole = dict(data) | {"scenario": yaml.safe_load(scenario.to_yaml())}
    found = Space(scenario, studies_of.parse(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True), source))
    _check_prices(found)
    return found


def _check_prices(found: Space) -> None:
    """Refuses devices that would all cost what the scenario states for its own."""
    base = found.study.base_scenario()
    paths = {axis for axis in found.study.axis_names if axis != VARIANT}
    for group in found.study.axes:
        for texts in (group.variants or {}).values():
            paths |= {Override.parse(text).path for text in texts}
    varied = sorted(path for path in paths if path.partition(".")[0] == "hardware")
    if varied and "gpu_hour" in base.prices.model_fields_set and not any(path.startswith("prices") for path in paths):
        raise InputError(
            f"{found.source}: axes: {varied[0]} is varied, but prices.gpu_hour is stated as {base.prices.gpu_hour:g}, for every "
            "device alike; leave it out of the scenario (each device then has its sheet's price), or vary both together: "
            "'- zip: {hardware: [H100, L40S], prices.gpu_hour: [2.5, 0.9]}'"
        )


def _listed(group: Axes, path: str) -> list[Any]:
    values = (group.grid or {})[path]
    return values.values() if isinstance(values, study_axes.Range) else list(values)


def _rises(values: Sequence[Any]) -> bool:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    return len(numbers) == len(values) > 2 and all(a < b for a, b in pairwise(numbers))
