"""In which direction an outcome should move: one figure of one case against that of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Section
from studies.reports import tables

Case = str | Mapping[str, Any]
"""A variant by its name, or points of a study by values of their axes."""


class Figure(Section):
    """One figure of a run.

    Args:
        metric: a key of the summary. of_class: only requests of that service class.
    """

    metric: str
    of_class: str | None = None

    @property
    def key(self) -> str:
        """Of a row's figure, within its class where there is one."""
        return self.metric if self.of_class is None else f"by_class.{self.of_class}.{self.metric}"

    @property
    def called(self) -> str:
        """In words."""
        return self.metric if self.of_class is None else f"{self.metric} of {self.of_class}"


class Expectation(Figure):
    """One figure of one case against that of another.

    Args:
        lower, higher, alike: the case whose figure is lower than, higher than or about that of `than`. by: at least so many
            times; of what is alike, at most.
    """

    lower: Case | None = None
    higher: Case | None = None
    alike: Case | None = None
    than: Case
    by: Annotated[float, Field(ge=1)] = 1.0

    @model_validator(mode="after")
    def _one_direction(self) -> Expectation:
        if [self.lower, self.higher, self.alike].count(None) != 2:
            raise misplaced("needs one of lower, higher and alike", "lower")
        if self.alike is not None and self.by == 1:
            raise misplaced("is missing; say how many times apart is still alike, such as 1.05", "by")
        return self

    @property
    def direction(self) -> str:
        """The field that names the case that something is expected of."""
        return next(name for name in ("lower", "higher", "alike") if getattr(self, name) is not None)

    @property
    def first(self) -> Case:
        """The case that something is expected of."""
        found: Case = getattr(self, self.direction)
        return found

    def holds(self, first: float, second: float) -> bool:
        """Whether two figures, of `first` and of `than`, are as expected."""
        if self.alike is not None:
            return max(first, second) <= self.by * min(first, second)
        low, high = (first, second) if self.lower is not None else (second, first)
        return low < high and low * self.by <= high

    def __str__(self) -> str:
        first, than = said(self.first), said(self.than)
        if self.alike is not None:
            return f"{self.called}: {first} as {than}, within {self.by:g} times"
        by = f", at least {self.by:g} times" if self.by > 1 else ""
        return f"{self.called}: {first} {self.direction} than {than}{by}"


@dataclass(frozen=True)
class Outcome:
    """What came of an expectation: the figures of its two cases, None where one is missing."""

    expected: Expectation
    first: float | None
    than: float | None

    @property
    def holds(self) -> bool | None:
        """Whether it does; None where a figure is missing."""
        return None if self.first is None or self.than is None else self.expected.holds(self.first, self.than)


def table(title: str, outcomes: Sequence[Outcome], note: str = "") -> tables.Table:
    """A row an expectation."""
    words = {True: "yes", False: "NO", None: "not measured"}
    rows = [
        (str(found.expected), tables.number(found.first), tables.number(found.than), words[found.holds])
        for found in outcomes
    ]
    return tables.Table(title, ("expected", "is", "against", "holds"), rows, note)


def said(case: Case) -> str:
    """A case in words: `bounded`, or `max_num_seqs 64, rate 10`."""
    if isinstance(case, str):
        return case
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in case.items()) or "every point"
