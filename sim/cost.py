"""What a step costs: the interface that the roofline, measured profiles and recorded durations share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.attribution import Shares
from serving.plan import StepShape


class CostModel(Protocol):
    """Duration of a step from its shape alone: no clock, no state.

    `decode_ns`, `step_ns` and `leap_ns` share one arithmetic path and round once a step (floor(x + 0.5)), so that a leap
    equals its single steps to the last bit: `step_ns` of a shape without prefill *is* `decode_ns`.
    """

    name: str

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        """A step of decodes only, all of which sample. Called once a step: keep it within a microsecond.

        context: sum of their contexts before the step. longest: of them; below the mean (0, say) where nobody knows.
        """

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        """`(fixed, per_context, until)`: the straight stretch that a step of decodes lies on.

        While the same decodes go on, `context` growing by `sequences` and `longest` by 1 a step, `decode_ns` is
        floor(fixed + per_context * context + 0.5), in doubles, as long as `context` is below `until`; infinite where costs are
        straight in contexts.
        """

    def step_ns(self, shape: StepShape) -> int:
        """Any step."""

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        """Durations, shape `(n,)`, of n successive decode steps: in step i every context is i tokens longer."""

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Nanoseconds by term; they sum to `step_ns` before rounding. Says what binds."""

    def shares(
        self, steps: Mapping[str, NDArray[np.int64]], query: NDArray[np.int64], context: NDArray[np.int64]
    ) -> Shares:
        """The same of many steps at once, by what each part is shared by (`serving.attribution`)."""

    def extrapolation(self, shape: StepShape) -> str | None:
        """Where this shape leaves the measured domain, in words; None inside it."""
