"""How hard requests are: 0 is trivial, 1 is beyond every model. To add a distribution: write a class here and put it into
`Difficulty`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Section, ShortForm

Floats = NDArray[np.float64]
Share = Annotated[float, Field(ge=0, le=1)]


class Fixed(Section):
    """Always the same; short form: the number alone."""

    distribution: Literal["fixed"]
    value: Share

    def draw(self, n: int, rng: Generator) -> Floats:
        """n difficulties in [0, 1], `(n,)`."""
        return np.full(n, self.value)


class Uniform(Section):
    """Everything between min and max is as likely."""

    distribution: Literal["uniform"]
    min: Share = 0.0
    max: Share = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.max < self.min:
            raise misplaced(f"found {self.max:g}, below min {self.min:g}", "max")
        return self

    def draw(self, n: int, rng: Generator) -> Floats:
        return self.min + (self.max - self.min) * rng.random(n)


class Beta(Section):
    """A hump around `mean`, the narrower the larger `concentration` (the sum of beta's two parameters) is."""

    distribution: Literal["beta"]
    mean: Annotated[float, Field(gt=0, lt=1)]
    concentration: Annotated[float, Field(gt=0, le=1e6)]

    def draw(self, n: int, rng: Generator) -> Floats:
        return rng.beta(self.mean * self.concentration, (1 - self.mean) * self.concentration, n)


class HardTail(Section):
    """Most requests are easy, a `share` of them hard: uniform in [0, border), and in [border, 1] for the tail."""

    distribution: Literal["hard_tail"]
    share: Share
    border: Annotated[float, Field(gt=0, lt=1)] = 0.5

    def draw(self, n: int, rng: Generator) -> Floats:
        u = rng.random((n, 2))
        easy = self.border * u[:, 1]
        return np.where(u[:, 0] < self.share, self.border + (1 - self.border) * u[:, 1], easy)


def _number(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"distribution": "fixed", "value": value}
    if not isinstance(value, dict | Section):
        raise ValueError(
            f"found {value!r}, but a number from 0 (trivial) to 1 is needed, or a mapping such as {{distribution: beta, mean: 0.3, concentration: 5}}"
        )
    return value


Difficulty = Annotated[
    Fixed | Uniform | Beta | HardTail,
    Field(discriminator="distribution"),
    BeforeValidator(_number),
    ShortForm({"type": "number", "minimum": 0, "maximum": 1}),
]
