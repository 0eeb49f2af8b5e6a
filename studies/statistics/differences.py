"""What one policy has more than another on the same seeds: in units of the figure, and as a part of the first.

Both differences are judged by the same t statistic. The ratio of means has Fieller's interval (Fieller 1954): all ratios r for which
the mean of b - r a is not distinguishable from zero. So the relative interval holds 0 exactly where the absolute one does, which an
interval of log-ratios does not promise, and figures may be 0 under some seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from studies.reports import written
from studies.statistics import intervals
from studies.statistics.directions import Better
from studies.statistics.intervals import CONFIDENCE, FEWEST, Interval

BySeed = Mapping[int, float | None]
"""A figure of each seed; None where its run has none."""

SAME = "the same under every seed: no sample of anything, so no interval"


@dataclass(frozen=True)
class Difference:
    """What the second has more than the first.

    absolute: in the unit of the figure. relative: as a part of the first one's mean (0.12 is 12 % more). better: which way the
    figure is better, None where neither is.
    """

    absolute: Interval
    relative: Interval
    better: Better | None = None

    @property
    def seen(self) -> bool | None:
        """Whether the two differ; None where no interval says so."""
        low, high = self.absolute.low, self.absolute.high
        if low is None or high is None:
            return None
        return low > 0 or high < 0

    @property
    def verdict(self) -> str:
        """`better`, `worse` (or `higher`, `lower` of a figure of which neither is better), `not distinguishable`, `the same`; of what no
        interval says, `not compared`."""
        found = self.absolute.estimate
        if found is None or (self.seen is None and self.absolute.refused != SAME):
            return "not compared"
        if found == 0 and not self.absolute.half_width:
            return "the same"
        if self.seen is False:
            return "not distinguishable"
        way = "higher" if found > 0 else "lower"
        if self.better is None:
            return way
        return "better" if way == self.better else "worse"

    def __str__(self) -> str:
        """`-12 % ± 3 %`, or `no difference seen`; a dash where nothing is known."""
        if self.verdict in ("the same", "not distinguishable"):
            return "no difference" if self.verdict == "the same" else "no difference seen"
        return written.part(self.relative)

    def sentence(self, second: str = "B", first: str = "A") -> str:
        """`B is 12 % ± 3 % better than A`, or why that cannot be said."""
        if self.verdict == "not compared":
            return f"{second} cannot be compared with {first}: {self.absolute.refused}"
        if self.verdict == "the same":
            return f"{second} and {first} are the same"
        if self.verdict == "not distinguishable":
            return f"{second} is not distinguishable from {first}: the difference is {written.part(self.relative)}"
        often = " (the same under every seed)" if self.absolute.refused == SAME else ""
        if self.relative.estimate is None:
            return f"{second} is {self.verdict} than {first}, which has none{often}"
        return f"{second} is {written.part(self.relative, around=True)} {self.verdict} than {first}{often}"

    def to_dict(self) -> dict[str, object]:
        return {
            "absolute": self.absolute.to_dict(),
            "relative": self.relative.to_dict(),
            "verdict": self.verdict,
        }


def difference(
    first: BySeed,
    second: BySeed,
    *,
    better: Better | None = None,
    confidence: float = CONFIDENCE,
    fewest: int = FEWEST,
) -> Difference:
    """What the second has more than the first on the same seeds. fewest: pairs below which there is no interval.

    better: see `directions.better`. Seeds that are not the same are refused: what was drawn under others is not a pair.

    Raises:
        ValueError: a confidence that is not between 0 and 1.
    """
    intervals.check_confidence(confidence)
    if why := _unpaired(first, second):
        nothing = Interval(None, n=0, confidence=confidence, refused=why)
        return Difference(nothing, nothing, better)
    seeds = list(first)
    pairs = [(x, y) for x, y in ((first[seed], second[seed]) for seed in seeds) if x is not None and y is not None]
    n = len(pairs)
    if n < len(seeds):
        why = f"{len(seeds) - n} of {len(seeds)} pairs have no value"
    elif n < fewest:
        why = f"{n} paired seeds; an interval needs {fewest}"
    if not n:
        nothing = Interval(None, n=0, confidence=confidence, refused=why)
        return Difference(nothing, nothing, better)
    a, b = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    if not why and np.ptp(a) == 0 and np.ptp(b) == 0:
        why = SAME
    gap = float((b - a).mean())
    ratio = float(b.mean() / a.mean()) - 1 if a.mean() else None
    if why:
        absolute = Interval(gap, n=n, confidence=confidence, refused=why)
        return Difference(absolute, Interval(ratio, n=n, confidence=confidence, refused=why), better)
    half = intervals.half_width(float((b - a).std(ddof=1)), n, confidence)
    return Difference(Interval(gap, gap - half, gap + half, n, confidence), _relative(a, b, ratio, confidence), better)


def _unpaired(first: BySeed, second: BySeed) -> str:
    if set(first) == set(second):
        return ""
    only = sorted(set(first) ^ set(second))
    shown = ", ".join(map(str, only[:3])) + (" and more" if len(only) > 3 else "")
    return f"seeds are not paired: {shown} of one side only"


def _relative(a: NDArray[np.float64], b: NDArray[np.float64], ratio: float | None, confidence: float) -> Interval:
    """Fieller's interval of mean(b) / mean(a) - 1. a, b: `(n,)`, paired."""
    n = len(a)
    if ratio is None:
        return Interval(None, n=n, confidence=confidence, refused="the first is 0, of which nothing is a part")
    reach = intervals.half_width(1.0, n, confidence) ** 2
    (saa, sab), (_, sbb) = np.cov(a, b) * reach
    # (mean(b) - r mean(a))^2 <= t^2 var(b - r a) / n, a quadratic in r.
    square, half, rest = a.mean() ** 2 - saa, a.mean() * b.mean() - sab, b.mean() ** 2 - sbb
    if square <= 0:
        why = "the first is not distinguishable from 0: nothing can be said as a part of it"
        return Interval(ratio, n=n, confidence=confidence, refused=why)
    root = math.sqrt(max(0.0, half**2 - square * rest))
    return Interval(ratio, float((half - root) / square) - 1, float((half + root) / square) - 1, n, confidence)
