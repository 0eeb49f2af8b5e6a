"""What the kinds of profiles share: where durations come from, domains, errors, jumps."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

Nanoseconds = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Fraction = Annotated[float, Field(allow_inf_nan=False)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(Part):
    """Where the durations come from. A profile is only comparable with runs of the same kind.

    details: whatever else the machine says of itself: its name, kernels, versions.
    """

    device: str
    clock: str
    threads: int | None = None
    details: dict[str, str] = {}


class Range(Part):
    min: int
    max: int

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class Domain(Part):
    """Smallest and largest value of each part of a shape that was measured; 0 where a step has no such part."""

    tokens: Range
    prefill_query: Range
    prefill_context: Range
    decode_sequences: Range
    decode_context: Range
    sampled: Range


class Jump(Part):
    """A place where the dense layers do not grow smoothly: a step up, or a dip that the monotone table cannot follow."""

    kind: Literal["step", "dip"]
    tokens_from: int
    tokens_to: int
    ns: float


class Errors(Part):
    """Relative errors, (predicted - measured) / measured."""

    observations: int
    mape: Fraction
    signed_mean: Fraction
    p90: Fraction
    worst: Fraction

    @classmethod
    def of(cls, relative: NDArray[np.float64]) -> Errors:
        """The summary of errors `(n,)`; zeros where there are none."""
        if not len(relative):
            return cls(observations=0, mape=0.0, signed_mean=0.0, p90=0.0, worst=0.0)
        size = np.abs(relative)
        return cls(
            observations=len(relative),
            mape=float(size.mean()),
            signed_mean=float(relative.mean()),
            p90=float(np.percentile(size, 90)),
            worst=float(relative[int(size.argmax())]),
        )


class Noise(Part):
    """What successive steps do beside their shape: measured / predicted - 1, its mean removed.

    correlation: of a step with the next one, of normal scores. quantiles: the distribution at equal distances of probability,
    from the least (0) to the largest (1); 0, 1, ..., 100 % for instance.
    """

    correlation: Annotated[float, Field(ge=0, lt=1)]
    quantiles: Annotated[tuple[Fraction, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _ascending(self) -> Noise:
        for a, b in pairwise(self.quantiles):
            if b < a:
                raise ValueError(f"noise: quantiles must not fall, found {a} before {b}")
        if self.quantiles[0] - self.mean <= -1:
            raise ValueError(f"noise: a quantile of {self.quantiles[0]} leaves a step no time; they lie above -1")
        return self

    @property
    def mean(self) -> float:
        """Of the distribution, which is straight between the quantiles."""
        return sum((a + b) / 2 for a, b in pairwise(self.quantiles)) / (len(self.quantiles) - 1)

    @property
    def sd(self) -> float:
        """Its standard deviation."""
        squares = sum((a * a + a * b + b * b) / 3 for a, b in pairwise(self.quantiles)) / (len(self.quantiles) - 1)
        return float(max(squares - self.mean**2, 0.0) ** 0.5)


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """Serialized fields, but for those of these names that hold nothing."""
    return {name: value for name, value in fields.items() if value or name not in names}


def save_json(part: Part, path: Path | str) -> Path:
    """Writes the JSON file of a profile; complete or not at all."""
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(part.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path
