"""Axes of a study: which scenarios it is made of, as points, each a value for every axis.

A study lists groups; its points are the product of all of them, the first group slowest:

    axes:
      - grid: {engine.max_num_seqs: [64, 256], workload.arrivals.rate: {from: 1, to: 16, steps: 5, spacing: log}}
      - zip: {model: [Llama-3.1-8B, Llama-3.1-70B], engine.tensor_parallel_size: [1, 4]}
      - random: {points: 20, seed: 1, of: {engine.max_num_batched_tokens: {from: 512, to: 16384, spacing: log, integer: true}}}
      - variants: {open: [], bounded: [admission.max_queue_requests=32]}

`axes: {engine.max_num_seqs: [64, 256]}` is one grid, written short.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PlainValidator, ValidationError, model_validator

from scenarios.errors import InputError, misplaced, one_message
from scenarios.fields import Section
from scenarios.load import Override

VARIANT = "variant"
"""Name of the axis whose values are named lists of overrides."""
ALIASES = {
    "workload.rate": "workload.arrivals.rate",
    "workload.concurrency": "workload.arrivals.concurrency",
    "workload.speedup": "workload.trace.speedup",
}
"""Short names of paths that are asked for often."""
MOST_POINTS = 1_000_000


class Range(Section):
    """Values between two ends.

    Args:
        steps: how many, both ends among them; of a random axis none is stated. spacing: `log`: equal ratios between neighbours.
        integer: rounded to whole numbers.
    """

    start: Annotated[float, Field(alias="from")]
    to: float
    steps: Annotated[int, Field(ge=2, le=MOST_POINTS)] | None = None
    spacing: Literal["linear", "log"] = "linear"
    integer: bool = False

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            from scenarios.errors import check_keys

            check_keys(data, ["from", "to", "steps", "spacing", "integer"])
        return data

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.start < self.to:
            raise misplaced(f"found {self.to:g}, but it must be above from ({self.start:g})", "to")
        if self.spacing == "log" and self.start <= 0:
            raise misplaced(f"found {self.start:g}, but equal ratios need an end above 0", "from")
        return self

    def values(self) -> list[float | int]:
        """All of them, without those that rounding makes equal."""
        return list(dict.fromkeys(self.at(part) for part in np.linspace(0.0, 1.0, self.steps or 2).tolist()))

    def at(self, part: float) -> float | int:
        """The value at that part of the way, in [0, 1]."""
        if self.spacing == "log":
            value = math.exp(math.log(self.start) + part * (math.log(self.to) - math.log(self.start)))
        else:
            value = self.start + part * (self.to - self.start)
        value = self.start if part == 0 else self.to if part == 1 else value
        return round(value) if self.integer else float(f"{value:.10g}")


def _values(found: Any) -> list[Any] | Range:
    """A list or a range; which of the two is told by what was written, so that an error is about that."""
    if isinstance(found, Range):
        return found
    if isinstance(found, Mapping):
        try:
            return Range.model_validate(found)
        except ValidationError as error:
            path, problem = one_message(error, found)
            raise misplaced(problem, *([path] if path else [])) from None
    if isinstance(found, range | np.ndarray):  # from Python
        found = list(found)
    if not isinstance(found, list | tuple):
        raise misplaced(f"found {found!r}, but a list of values is needed, or a range {{from: 1, to: 16, steps: 5}}")
    if not found:
        raise misplaced("found [], but an axis without values makes a study without cells; list some, or leave it out")
    values = [value.item() if isinstance(value, np.generic) else value for value in found]
    for value in values:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise misplaced(
                f"found {value!r}, but a value is what a scenario file can hold: a finite number, text, ..."
            ) from None
    return values


Values = Annotated[Any, PlainValidator(_values)]
"""A list, or a `Range`."""
Overrides = Annotated[tuple[str, ...], Field(strict=False)]


class RandomAxes(Section):
    """Values drawn independently. points: how many draws; seed: of the draws, not of the runs; of: a range or a list each."""

    points: Annotated[int, Field(ge=1, le=MOST_POINTS)]
    seed: Annotated[int, Field(ge=0)] = 0
    of: Annotated[Mapping[str, Values], Field(min_length=1)]

    @model_validator(mode="after")
    def _no_steps(self) -> RandomAxes:
        for path, values in self.of.items():
            if isinstance(values, Range) and values.steps is not None:
                raise misplaced("found beside a random axis, whose points are drawn; leave it out", "of", path, "steps")
        return self


class Axes(Section):
    """One group of axes: exactly one of its fields."""

    grid: Annotated[Mapping[str, Values], Field(min_length=1)] | None = None
    zip: Annotated[Mapping[str, Values], Field(min_length=1)] | None = None
    random: RandomAxes | None = None
    variants: Annotated[Mapping[str, Overrides], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Axes:
        given = [name for name in ("grid", "zip", "random", "variants") if getattr(self, name) is not None]
        if len(given) != 1:
            raise misplaced(
                f"found {' and '.join(given) or 'nothing'}, but one of grid, zip, random and variants is needed"
            )
        for kind in ("grid", "zip"):
            for path, values in (getattr(self, kind) or {}).items():
                if isinstance(values, Range) and values.steps is None:
                    raise misplaced("is required and missing", kind, path, "steps")
        for path, values in (self.grid or {}).items():
            if (twice := _twice(_listed(values))) is not None:
                raise misplaced(f"found {twice} twice, but every point of a grid is run once", "grid", path)
        for name, texts in (self.variants or {}).items():
            for i, text in enumerate(texts):
                try:
                    Override.parse(text, text)
                except InputError as error:
                    raise misplaced(str(error), "variants", name, i) from None
        lengths = {path: len(_listed(values)) for path, values in (self.zip or {}).items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{path} {n}" for path, n in lengths.items())
            raise misplaced(f"axes that go together need equally many values, found {said}", "zip")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its axes: paths, or `variant`."""
        if self.variants is not None:
            return (VARIANT,)
        return tuple(self.grid or self.zip or (self.random.of if self.random else {}))

    def size(self) -> int:
        """How many points it has."""
        if self.grid is not None:
            return math.prod(len(_listed(values)) for values in self.grid.values())
        if self.zip is not None:
            return len(_listed(next(iter(self.zip.values()))))
        return self.random.points if self.random is not None else len(self.variants or {})

    def rows(self) -> list[tuple[Any, ...]]:
        """Values of its axes, a tuple a point."""
        if self.grid is not None:
            return list(product(*(_listed(values) for values in self.grid.values())))
        if self.zip is not None:
            return list(zip(*(_listed(values) for values in self.zip.values()), strict=True))
        if self.random is not None:
            rng = np.random.default_rng(self.random.seed)
            parts = rng.random((self.random.points, len(self.random.of)))
            return [
                tuple(_drawn(values, part) for values, part in zip(self.random.of.values(), row, strict=True))
                for row in parts.tolist()
            ]
        return [(name,) for name in self.variants or {}]


def _twice(values: list[Any]) -> str | None:
    """The first value that is there twice, as it is written. `true` and `1` are two values."""
    seen: set[str] = set()
    for value in values:
        text = json.dumps(value, sort_keys=True, default=str)
        if text in seen:
            return text
        seen.add(text)
    return None


def _listed(values: Any) -> list[Any]:
    return values.values() if isinstance(values, Range) else list(values)


def _drawn(values: Any, part: float) -> Any:
    if isinstance(values, Range):
        return values.at(part)
    return values[min(int(part * len(values)), len(values) - 1)]


@dataclass(frozen=True)
class Point:
    """One scenario of a study but for its seed. index: its place in the study, from 0; values: by axis; overrides: what makes it."""

    index: int
    values: Mapping[str, Any]
    overrides: tuple[Override, ...]

    def matches(self, case: Mapping[str, Any]) -> bool:
        """Whether it has these values."""
        return all(self.values.get(axis) == value for axis, value in case.items())

    def __str__(self) -> str:
        names = short_names(tuple(self.values))
        return ", ".join(f"{names[axis]} {value}" for axis, value in self.values.items())


def short_names(axes: Sequence[str]) -> dict[str, str]:
    """Axes by the last part of their path, or by as many parts as tell them apart."""
    found = {}
    for axis in axes:
        parts = axis.split(".")
        for k in range(1, len(parts) + 1):
            name = ".".join(parts[-k:])
            if sum(other == name or other.endswith(f".{name}") for other in axes) == 1:
                break
        found[axis] = name
    return found


def points(groups: Sequence[Axes]) -> list[Point]:
    """Every point of the product of all groups, in order."""
    names = [name for group in groups for name in group.names]
    variants = next((group.variants for group in groups if group.variants is not None), {})
    found = []
    for index, parts in enumerate(product(*(group.rows() for group in groups))):
        values = dict(zip(names, (value for part in parts for value in part), strict=True))
        overrides: list[Override] = []
        for axis, value in values.items():
            if axis == VARIANT:
                overrides += [Override.parse(text, f"axes: variant {value}: {text}") for text in variants[value]]
            else:
                overrides.append(Override(ALIASES.get(axis, axis), value, f"axes: {axis}={value}"))
        found.append(Point(index, values, tuple(overrides)))
    return found
