"""What the kinds of profiles share: where durations come from, domains, errors, jumps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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


def save_json(part: Part, path: Path | str) -> Path:
    """Writes the JSON file of a profile; complete or not at all."""
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(part.model_dump_json(indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path
