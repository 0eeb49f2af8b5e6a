"""How often an interval holds the truth, against how often it says that it does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import stats

Trial = Callable[[np.random.Generator], bool]


def share(trial: Trial, trials: int, seed: int) -> float:
    """Part of independent trials whose interval held the truth."""
    return sum(trial(np.random.default_rng((seed, i))) for i in range(trials)) / trials


def assert_covers(
    trial: Trial, *, confidence: float = 0.95, trials: int = 400, seed: int = 0, most: float = 1.0
) -> None:
    """The interval holds the truth as often as stated, as far as so many trials can tell (1 in 1,000 would fail by chance).

    most: upper bound of what is stated, of intervals that hold more than they say by their construction.
    """
    held = round(share(trial, trials, seed) * trials)
    low = stats.binom.ppf(0.0005, trials, confidence)
    high = stats.binom.ppf(0.9995, trials, max(confidence, most))
    assert low <= held <= high, (
        f"{held} of {trials} intervals of {confidence:.0%} hold the truth; {low:.0f} to {high:.0f} would do"
    )
