"""Where a run is warm: MSER-5 (White 1997, Simulation 69:323; White, Cobb and Spratt 2000).

The first values of a run are of an empty system. What is cut is what makes the rest's mean most certain: the cut d that minimises
the sum of squared deviations after it over (n - d)^2, values taken five at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

BATCH = 5
FEWEST = 100
"""Values below which no warm-up is looked for."""


@dataclass(frozen=True)
class WarmUp:
    """cut: values to leave out at the beginning; None where none makes the rest steady, and `refused` says why. of: values in all."""

    cut: int | None
    of: int
    refused: str = ""


def mser5(values: ArrayLike, least_gain: float = 0.0) -> WarmUp:
    """The warm-up of a series in order of time, `(n,)`.

    least_gain: nothing is cut unless that lowers the squared error of the mean by this part. With 0, as White has it, of a steady
    series the first few large values are cut wherever that makes the rest look surer, which biases its mean.

    Refused where the cut would lie in the second half: what then remains is no steady state, the run is too short or still grows.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    if n < FEWEST:
        return WarmUp(None, n, f"{n:,} values; a warm-up is looked for in {FEWEST} or more")
    batches = x[: n - n % BATCH].reshape(-1, BATCH).mean(axis=1)
    k = len(batches)
    left = np.arange(k, 0, -1.0)
    centred = (batches - batches[-1])[::-1]  # sums from the end; near zero, so that squares cancel little
    sums, squares = np.cumsum(centred)[::-1], np.cumsum(centred**2)[::-1]
    error = np.maximum(squares - sums**2 / left, 0.0) / left**2
    # The very last batches are alike by chance; a cut among them is one in the second half anyway.
    d = int(np.argmin(error[: k - BATCH]))
    if error[d] > (1 - least_gain) * error[0]:
        d = 0
    if 2 * d >= k:
        return WarmUp(
            None, n, f"the warm-up would end in the second half of {n:,} values: not steady, or too short a run"
        )
    return WarmUp(d * BATCH, n)
