"""Step costs that bend: every few tokens of context the slope changes, by the mean as by the longest of the contexts."""

from __future__ import annotations

from bisect import bisect_right
from math import inf

import numpy as np
from numpy.typing import NDArray

from serving.plan import StepShape

MEANS = (0.0, 12.0, 13.0, 40.0, 90.5, 200.0)
LONGEST = (0.0, 17.0, 33.0, 34.0, 150.0)
SLOPES = (64.0, 4096.0, 16.5, 0.0, 2048.0, 8.0)  # exact in doubles, as every sum of them is


class BentCost:
    """A decode step: 1 ms + line of the sum of contexts, which bends where their mean passes MEANS + line of the longest, which
    bends at LONGEST. Prompts cost 1 us a token more."""

    name = "bent"

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        fixed, per_context, _ = self.decode_line(sequences, context, longest)
        return int(fixed + per_context * context + 0.5)

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        if not sequences:
            return 1e6, 0.0, inf
        ahead = longest * sequences - context  # constant while the same decodes go on
        fixed, slope, until = _stretch([at * sequences for at in MEANS], context)
        more, also, bend = _stretch([at * sequences for at in LONGEST], context + ahead)
        return 1e6 + fixed + more + also * ahead, slope + also, min(until, bend - ahead)

    def step_ns(self, shape: StepShape) -> int:
        decodes = self.decode_ns(shape.decode_sequences, shape.decode_context, shape.decode_max_context)
        return decodes + 1000 * shape.prefill_tokens

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        _, sequences, context, longest, _, _ = shape
        steps = [self.decode_ns(sequences, context + i * sequences, longest + i) for i in range(n)]
        return np.array(steps, dtype=np.int64)

    def terms(self, shape: StepShape) -> dict[str, float]:
        return {"step": float(self.step_ns(shape))}

    def extrapolation(self, shape: StepShape) -> str | None:
        return None


def _stretch(bends: list[float], x: float) -> tuple[float, float, float]:
    """The stretch of a line with bends that holds x: its value at 0 if it went on, its slope, and where it ends."""
    at = bisect_right(bends, x) - 1
    fixed = sum((SLOPES[i] - SLOPES[i + 1]) * bends[i + 1] for i in range(at))
    return fixed, SLOPES[at], bends[at + 1] if at + 1 < len(bends) else inf
