"""In which direction an outcome should move: one figure of one case against that of another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Section

Case = str | Mapping[str, Any]
"""A variant by its name, or points of a study by values of their axes."""


class Expectation(Section):
    """One figure of one case against that of another.

    Args:
        metric: a key of the summary. of_class: only requests of that service class (latencies and `good_request_fraction`).
        lower, higher, alike: the case whose figure is lower than, higher than or about that of `than`. by: at least so many
            times; of what is alike, at most.
    """

    metric: str
    of_class: str | None = None
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

    @property
    def key(self) -> str:
        """Key of the figure, within its class where there is one."""
        return self.metric if self.of_class is None else f"by_class.{self.of_class}.{self.metric}"

    def holds(self, first: float, second: float) -> bool:
        """Whether two figures, of `first` and of `than`, are as expected."""
        if self.alike is not None:
            return max(first, second) <= self.by * min(first, second)
        low, high = (first, second) if self.lower is not None else (second, first)
        return low < high and low * self.by <= high

    def __str__(self) -> str:
        of = f" of {self.of_class}" if self.of_class else ""
        first, than = said(self.first), said(self.than)
        if self.alike is not None:
            return f"{self.metric}{of}: {first} as {than}, within {self.by:g} times"
        by = f", at least {self.by:g} times" if self.by > 1 else ""
        return f"{self.metric}{of}: {first} {self.direction} than {than}{by}"


def said(case: Case) -> str:
    """A case in words: `bounded`, or `max_num_seqs 64, rate 10`."""
    if isinstance(case, str):
        return case
    return ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in case.items()) or "every point"
