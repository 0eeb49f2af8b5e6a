"""What a step costs: the interface that the roofline, measured profiles and recorded durations share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.plan import StepShape


class CostModel(Protocol):
    """Duration of a step from its shape alone: no clock, no state.

    `decode_ns`, `step_ns` and `leap_ns` share one arithmetic path and round once a step (floor(x + 0.5)), so that a leap
    equals its single steps to the last bit: `step_ns` of a shape without prefill *is* `decode_ns`.
    """

    name: str

    def decode_ns(self, sequences: int, context: int, max_context: int) -> int:
        """A step of decodes only (all of them sample). Called once a step: keep it under half a microsecond."""

    def decode_line(self, sequences: int) -> tuple[float, float]:
        """`(fixed, per_context)` such that `decode_ns` is floor(fixed + per_context * context + 0.5), in doubles."""

    def step_ns(self, shape: StepShape) -> int:
        """Any step."""

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        """Durations, shape `(n,)`, of n successive decode steps; step i has `decode_context + i * decode_sequences`."""

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Nanoseconds by term; they sum to `step_ns` before rounding. Says what binds."""

    def extrapolation(self, shape: StepShape) -> str | None:
        """Where this shape leaves the measured domain, in words; None inside it."""
