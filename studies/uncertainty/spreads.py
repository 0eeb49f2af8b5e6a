"""What is known of an uncertain number: which values it may have, and how likely each is.

A spread maps a rank (the probability of lying below, in (0, 1)) to a value, and to a score: what a regression on the number takes,
of mean 0 and variance 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

_NORMAL = NormalDist()
ERROR_TO_SD = math.sqrt(math.pi / 2)
"""Standard deviation of a normal variable of mean absolute value 1."""


class Spread(Protocol):
    """words: what nine of ten worlds have, or all of them where nothing is known but two ends."""

    def value(self, rank: float) -> float: ...
    def score(self, rank: float) -> float: ...
    def words(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Factor:
    """How many times what is assumed: lognormal of median 1. sd: of its logarithm."""

    sd: float

    def value(self, rank: float) -> float:
        return math.exp(self.sd * _NORMAL.inv_cdf(rank))

    def score(self, rank: float) -> float:
        return _NORMAL.inv_cdf(rank)

    def words(self) -> str:
        return f"x {self.value(0.05):.2f} to {self.value(0.95):.2f}"

    def to_dict(self) -> dict[str, Any]:
        return {"distribution": "lognormal", "median": 1.0, "sd": self.sd}


@dataclass(frozen=True)
class Between:
    """How many times what is assumed: all between two ends alike."""

    low: float
    high: float

    def value(self, rank: float) -> float:
        return self.low + rank * (self.high - self.low)

    def score(self, rank: float) -> float:
        return math.sqrt(12) * (rank - 0.5)

    def words(self) -> str:
        return f"x {self.low:g} to {self.high:g}"

    def to_dict(self) -> dict[str, Any]:
        return {"distribution": "uniform", "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Bytes:
    """Memory between two ends, and what is assumed of it: as often below as above that, all values of a side alike."""

    low: float
    assumed: float
    high: float

    def value(self, rank: float) -> float:
        if rank < 0.5:
            return self.low + 2 * rank * (self.assumed - self.low)
        return self.assumed + (2 * rank - 1) * (self.high - self.assumed)

    def score(self, rank: float) -> float:
        return math.sqrt(12) * (rank - 0.5)

    def words(self) -> str:
        return f"{self.low / 1e9:.1f} to {self.high / 1e9:.1f} GB"

    def to_dict(self) -> dict[str, Any]:
        return {
            "distribution": "uniform on each side of the median",
            "low": self.low,
            "median": self.assumed,
            "high": self.high,
            "unit": "bytes beside weights and KV",
        }


@dataclass(frozen=True)
class Share:
    """A share between 0 and 1 that was estimated: normal, cut at the ends. sd: standard error of the estimate."""

    mean: float
    sd: float

    def value(self, rank: float) -> float:
        return min(max(self.mean + self.sd * _NORMAL.inv_cdf(rank), 1e-3), 1 - 1e-3)

    def score(self, rank: float) -> float:
        return _NORMAL.inv_cdf(rank)

    def words(self) -> str:
        return f"{self.value(0.05):.2f} to {self.value(0.95):.2f}"

    def to_dict(self) -> dict[str, Any]:
        return {"distribution": "normal", "median": self.mean, "sd": self.sd}
