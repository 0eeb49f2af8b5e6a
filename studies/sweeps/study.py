"""A study file: a scenario, the axes along which it is varied, the seeds of every point, and what is expected of the outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PlainValidator, PrivateAttr, ValidationError, model_validator

import scenarios
from scenarios import documents
from scenarios.errors import InputError, misplaced, one_message
from scenarios.fields import Section
from scenarios.library import questions
from scenarios.load import Override
from scenarios.schema import Scenario
from scenarios.shipped import Shipped
from studies.expectations import Expectation
from studies.stated_figures import Shown
from studies.sweeps.axes import ALIASES, MOST_POINTS, Axes, Overrides, Point, points

_SHIPPED = Shipped(questions, "study")

MOST_SEEDS = 100_000
_GROUP, _GRID = "axes[0]", "axes[0].grid"


def _seeds(found: Any) -> int | tuple[int, ...]:
    """A count, or a list."""
    if isinstance(found, int) and not isinstance(found, bool):
        if not 1 <= found <= MOST_SEEDS:
            raise misplaced(f"found {found}, but a point has 1 to {MOST_SEEDS:,} seeds")
        return found
    found = list(found) if isinstance(found, range) else found
    if not isinstance(found, list | tuple) or any(isinstance(s, bool) or not isinstance(s, int) for s in found):
        raise misplaced(f"found {found!r}, but a count of seeds is needed (5), or a list of them ([0, 1, 2])")
    if not found:
        raise misplaced("found [], but a study without seeds has no cells; give a count (5), or list some")
    if len(set(found)) < len(found):
        raise misplaced(f"found {next(s for s in found if found.count(s) > 1)} twice; list every seed once")
    if min(found) < 0:
        raise misplaced(f"found {min(found)}, but a seed is never negative")
    return tuple(found)


class Reduced(Section):
    """The study in small, for a test: more overrides, and fewer seeds. Only points that something is expected of are run."""

    set: Overrides = ()
    seeds: Annotated[int, Field(ge=1)] = 1


class Study(Section):
    """A file of `servetwin sweep`.

    Args:
        base: name or file of a scenario; or `scenario`, a whole one. set: overrides of every point.
        axes: what is varied (`studies.sweeps.axes`). seeds: how many runs a point has, with the scenario's seed and those
            that follow it, the same for every point (common random numbers); or a list of them.
        metrics: figures that its tables and pages show, by their keys; a few latencies, throughput and cost by default.
        expect: directions of the outcome, of means over seeds. reduced: the study in small.
        question, answer, assumes, on_hardware: of a shipped study: what it asks, what this version answers, what the answer
            takes for granted, how to run it on hardware. shown: figures that the answer states, and where they are from.
    """

    question: str = ""
    answer: str = ""
    assumes: str = ""
    on_hardware: str = ""
    base: str | None = None
    scenario: Mapping[str, Any] | None = None
    set: Overrides = ()
    axes: Annotated[tuple[Axes, ...], Field(strict=False)] = ()
    seeds: Annotated[Any, PlainValidator(_seeds)] = 5  # int | tuple[int, ...], of which pydantic cannot write the tuple
    metrics: Annotated[tuple[str, ...], Field(strict=False)] = ()
    expect: Annotated[tuple[Expectation, ...], Field(strict=False)] = ()
    shown: Annotated[tuple[Shown, ...], Field(strict=False)] = ()
    reduced: Reduced = Reduced()

    _source: str = PrivateAttr("study")
    _folder: Path | None = PrivateAttr(None)
    _within: Path | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _short_axes(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "axes" in data and data["axes"] in (None, {}, [], ()):
            found = "nothing" if data["axes"] is None else data["axes"]
            raise misplaced(
                f"found {found}, but an empty grid has no points; name what is varied, such as "
                "{engine.max_num_seqs: [64, 256]}, or leave axes out",
                "axes",
            )
        return _in_full(data)

    @model_validator(mode="after")
    def _consistent(self) -> Study:
        if (self.base is None) == (self.scenario is None):
            raise misplaced("needs a scenario or a base, and not both", "scenario")
        names = [ALIASES.get(name, name) for group in self.axes for name in group.names]
        for i, group in enumerate(self.axes):
            for name in group.names:
                if names.count(ALIASES.get(name, name)) > 1:
                    raise misplaced(f"{name} is varied twice", "axes", i)
                if name == "seed":
                    raise misplaced("found seed among the axes; say it as seeds, which every point shares", "axes", i)
        size = math.prod(group.size() for group in self.axes)
        if size > MOST_POINTS:
            raise misplaced(f"{size:,} points, but at most {MOST_POINTS:,} are run", "axes")
        self._check_expectations()
        return self

    def _check_expectations(self) -> None:
        points = self.points() if self.expect or self.shown else []
        for i, expected in enumerate(self.expect):
            for field in ("lower", "higher", "alike", "than"):
                case = getattr(expected, field)
                if case is None:
                    continue
                if not isinstance(case, Mapping):
                    raise misplaced(
                        f"found {case!r}, but points are said by their axes, such as {{engine.max_num_seqs: 64}}",
                        "expect", i, field,
                    )  # fmt: skip
                self._check_case(points, case, "expect", i, field)
        for i, figure in enumerate(self.shown):
            if figure.say not in self.answer:
                raise misplaced(f"found {figure.say}, which the answer does not say", "shown", i, "say")
            self._check_case(points, figure.of, "shown", i, "of")
            if figure.against is not None:
                self._check_case(points, figure.against, "shown", i, "against")

    @staticmethod
    def _check_case(points: Sequence[Point], case: Mapping[str, Any], *where: str | int) -> None:
        if not any(point.matches(case) for point in points):
            raise misplaced(f"no point has {dict(case)}", *where)

    @property
    def source(self) -> str:
        """What messages call it: its file or shipped name."""
        return self._source

    @property
    def name(self) -> str:
        """Its file's name without ending."""
        return Path(self._source).stem

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of all axes, in order."""
        return tuple(name for group in self.axes for name in group.names)

    def axis_values(self) -> dict[str, list[Any]]:
        """Of every axis all values, in order of the points."""
        found: dict[str, list[Any]] = {}
        for group in self.axes:
            for name, values in zip(group.names, zip(*group.rows(), strict=True), strict=True):
                found[name] = list(values)
        return found

    @property
    def cell_count(self) -> int:
        """Points times seeds."""
        seeds = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        return int(seeds) * math.prod(group.size() for group in self.axes)

    def points(self) -> list[Point]:
        """Every point, in order; one without axes."""
        return points(self.axes)

    def expected_points(self) -> list[Point]:
        """Only those that something is expected of."""
        cases = [case for e in self.expect for case in (e.first, e.than)]
        return [p for p in self.points() if any(isinstance(case, Mapping) and p.matches(case) for case in cases)]

    def seed_list(self, *, small: bool = False) -> tuple[int, ...]:
        """Seeds of every point."""
        if isinstance(self.seeds, tuple):
            return self.seeds[: self.reduced.seeds] if small else self.seeds
        first = self.base_scenario().seed
        return tuple(range(first, first + (self.reduced.seeds if small else self.seeds)))

    def base_scenario(self) -> Scenario:
        """The scenario before anything is varied.

        Raises:
            InputError: it is wrong.
        """
        return self._loaded((), None, False)

    def scenario_of(self, point: Point, seed: int, *, small: bool = False) -> Scenario:
        """The scenario of a cell: a point and a seed. small: as `reduced` says.

        Raises:
            InputError: an axis leads to no field, or its value is not allowed there; names the study and the axis.
        """
        return self._loaded(point.overrides, seed, small)

    def _loaded(self, varied: tuple[Override, ...], seed: int | None, small: bool) -> Scenario:
        given: list[str | Override] = [Override.parse(text, f"{self.source}: set: {text}") for text in self.set]
        given += [Override(o.path, o.value, f"{self.source}: {o.source}") for o in varied]
        if small:
            given += [Override.parse(text, f"{self.source}: reduced.set: {text}") for text in self.reduced.set]
        if self.base is None:
            text = yaml.safe_dump(_plain(self.scenario), sort_keys=False)
            source = f"{self.source}: scenario"
            return scenarios.loads(
                text, source=source, base=self._folder, overrides=given, seed=seed, within=self._within
            )
        beside = self._folder / self.base if self._folder is not None else None
        file = beside if beside is not None and beside.is_file() else self.base
        try:
            return scenarios.load(
                file if isinstance(file, Path) else str(file), overrides=given, seed=seed, within=self._within
            )
        except InputError as error:
            mine = str(error).startswith(f"{self.source}: ")
            raise InputError(str(error) if mine else f"{self.source}: base: {error}") from None

    def with_overrides(self, given: Sequence[str]) -> Study:
        """The same of which every point is changed: `path=value`, after its own `set`; what an axis varies, stays varied."""
        return self.model_copy(update={"set": (*self.set, *given)})

    def content(self) -> dict[str, Any]:
        """What decides its cells, JSON-able: not its texts, nor what is shown or expected of it."""
        told = {"question", "answer", "assumes", "on_hardware", "metrics", "expect", "shown", "reduced"}
        return self.model_dump(mode="json", exclude=told, exclude_unset=True, by_alias=True)

    def to_yaml(self) -> str:
        """A file that reads as an equal study: the fields that were given, no others."""
        data = self.model_dump(mode="json", exclude_unset=True, by_alias=True)
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _short(axes: Any) -> str | None:
    """Where in full axes stand that are written short, as one group or as one grid; None of those written in full."""
    if not isinstance(axes, Mapping):
        return None
    return _GROUP if set(axes) <= set(Axes.model_fields) else _GRID


def _in_full(data: Any) -> Any:
    """A study as it was written, with its axes as a list of groups."""
    short = _short(data.get("axes")) if isinstance(data, Mapping) else None
    if short is None:
        return data
    return dict(data) | {"axes": [dict(data["axes"]) if short == _GROUP else {"grid": dict(data["axes"])}]}


def _as_written(path: str, axes: Any) -> str:
    """The path of an error in full, as it is in the file."""
    short = _short(axes)
    return path if short is None else path.replace(short, "axes", 1).replace(_GROUP, "axes", 1)


def _plain(value: Any) -> Any:
    """Mappings and lists of the plain kinds that YAML writes."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def names() -> tuple[str, ...]:
    """Names of the shipped studies."""
    return _SHIPPED.names()


def read(name: str | Path) -> Study:
    """The study of a file, or the shipped one of that name.

    Raises:
        InputError: there is none, or it is wrong.
    """
    if str(name) in set(scenarios.names()) - set(names()) and not Path(name).is_file():
        raise InputError(f"{name}: is a scenario, and a study is needed: a file with `base: {name}`, axes and seeds")
    return parse(*_SHIPPED.find(name))


def parse(text: str, source: str = "study", folder: Path | None = None) -> Study:
    """The study of a YAML text. folder: where its files are looked for.

    Raises:
        InputError: names the first field that is wrong, and what is allowed.
    """
    return from_mapping(documents.mapping(text, source), source, folder)


def from_mapping(
    data: Mapping[str, Any],
    source: str = "study",
    folder: Path | None = None,
    *,
    check: bool = True,
    within: Path | None = None,
) -> Study:
    """The study whose fields are these. folder: where its files are looked for. check: that the scenario it is based on is right.

    within: a folder that all files that its scenarios name must lie in: for fields that come from a stranger, see `scenarios.loads`.

    Raises:
        InputError: names the first field that is wrong, and what is allowed.
    """
    if {"workload", "model"} & set(data):
        raise InputError(
            f"{source}: is a scenario, and a study is needed: a file with `base: {Path(source).name}`, axes and seeds; or this "
            "one below `scenario:`"
        )
    try:
        study = Study.model_validate(data)
    except ValidationError as error:
        path, problem = one_message(error, _in_full(data))
        path = _as_written(path, data.get("axes"))
        raise InputError(f"{source}: {path}: {problem}" if path else f"{source}: {problem}") from None
    study._source, study._folder, study._within = source, folder, within
    if check:
        study.base_scenario()
    return study
