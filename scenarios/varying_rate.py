"""Arrivals whose rate changes with time: in steps, over the day, along a ramp, in a spike.

All of them cumulate the rate into expected arrivals and invert that: arrivals are the times at which it reaches 0, 1, 2, ... or
the points of a Poisson process of rate 1. So equal expected counts mean equal counts, and a busy hour is the quiet one squeezed.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from scenarios.errors import InputError, misplaced
from scenarios.fields import CENTURY, Duration, PositiveDuration, Rate, RateOrZero, Section

Times = NDArray[np.int64]
Floats = NDArray[np.float64]
MOST_REQUESTS = 10_000_000
_DAY = 86_400.0
_SINE = 288  # straight lines that a sine is made of: five minutes of a day, within 0.01 % of its peak
_MOST_PIECES = 10_000_000


def to_ns(seconds: Floats) -> Times:
    if seconds.size and not seconds.max() <= CENTURY:
        raise InputError("workload.arrivals: at this rate the last request is sent in more than a hundred years")
    return np.rint(seconds * 1e9).astype(np.int64)


@dataclass(frozen=True)
class Pieces:
    """A rate over time, straight lines one behind the other from time 0, `(pieces,)` each: durations in seconds, and the rates
    at which each begins and ends, per second."""

    durations: Floats
    begins: Floats
    ends: Floats

    @classmethod
    def of(cls, durations: ArrayLike, begins: ArrayLike, ends: ArrayLike | None = None) -> Pieces:
        begin = np.array(begins, dtype=np.float64)
        return cls(
            np.array(durations, dtype=np.float64), begin, begin if ends is None else np.array(ends, dtype=np.float64)
        )

    @property
    def expected(self) -> Floats:
        """Expected arrivals until the end of each piece, `(pieces,)`. Rounding keeps 0.1/s x 30 s at exactly 3."""
        cumulated = np.cumsum((self.begins + self.ends) / 2 * self.durations)
        return np.asarray(np.round(cumulated, 9), dtype=np.float64)

    def until(self, time: float) -> Pieces:
        """The same, cut at `time` seconds."""
        starts = np.cumsum(self.durations) - self.durations
        kept = starts < time
        durations = np.minimum(self.durations, time - starts)[kept]
        slope = (self.ends - self.begins)[kept] / self.durations[kept]
        whole = durations == self.durations[kept]
        return Pieces(
            durations, self.begins[kept], np.where(whole, self.ends[kept], self.begins[kept] + slope * durations)
        )

    def repeated(self, times: int) -> Pieces:
        return Pieces(*(np.tile(column, times) for column in (self.durations, self.begins, self.ends)))

    def after(self, time: float) -> Pieces:
        """What is left of them from `time` seconds on."""
        starts = np.cumsum(self.durations) - self.durations
        kept = starts + self.durations > time
        gone = np.maximum(time - starts, 0.0)[kept]
        slope = (self.ends - self.begins)[kept] / self.durations[kept]
        return Pieces(self.durations[kept] - gone, self.begins[kept] + slope * gone, self.ends[kept])

    def times(self, points: Floats) -> Times:
        """When the expected number of arrivals reaches each point, in ns; points: below `expected[-1]`, not falling."""
        expected = self.expected
        # A point on a border belongs to the next piece that sends anything.
        piece = np.searchsorted(expected, points, side="right")
        x = points - np.concatenate([[0.0], expected[:-1]])[piece]
        begin, end, duration = self.begins[piece], self.ends[piece], self.durations[piece]
        # begin t + (end - begin) t^2 / (2 duration) = x, in the form that also holds for equal rates
        root = np.sqrt(np.maximum(begin**2 + 2 * x * (end - begin) / duration, 0.0))
        inside = np.divide(2 * x, begin + root, out=np.zeros_like(x), where=x > 0)
        starts = np.cumsum(self.durations) - self.durations
        return to_ns(starts[piece] + np.minimum(inside, duration))


def points_below(total: float, within: str, rng: Generator) -> Floats:
    """Points of a process of rate 1 on [0, total)."""
    if within == "constant":
        return np.arange(int(np.ceil(total)), dtype=np.float64)
    drawn = np.cumsum(rng.standard_exponential(int(total + 10 * np.sqrt(total)) + 20))
    while drawn[-1] < total:
        more = np.cumsum(rng.standard_exponential(len(drawn)))
        drawn = np.concatenate([drawn, drawn[-1] + more])
    return drawn[drawn < total]


def check_expected(requests: float) -> None:
    """Refuses a duration in which more would be sent than a workload holds."""
    if requests > MOST_REQUESTS:
        raise misplaced(f"holds {requests:.3g} requests, more than the {MOST_REQUESTS:,} of one workload", "duration")


class Stage(Section):
    """A stretch of time with one rate; 0 is silence."""

    rate: RateOrZero
    duration: PositiveDuration


class Staged(Section):
    """A rate that changes in steps. The stages say how many requests there are; with `requests`, no more than those."""

    process: Literal["staged"]
    stages: Annotated[tuple[Stage, ...], Field(strict=False, min_length=1)]
    within: Literal["constant", "poisson"] = "constant"

    @model_validator(mode="after")
    def _not_silent(self) -> Staged:
        if not any(stage.rate for stage in self.stages):
            raise misplaced("every rate is 0: nothing would ever be sent", "stages")
        expected = sum(stage.rate * stage.duration for stage in self.stages)
        if expected > MOST_REQUESTS:
            raise misplaced(f"hold {expected:.3g} requests, more than the {MOST_REQUESTS:,} of one workload", "stages")
        return self

    @property
    def duration(self) -> float:
        return sum(stage.duration for stage in self.stages)

    def draw(self, n: int | None, rng: Generator) -> Times:
        """Every arrival inside the stages, at most n of them."""
        pieces = Pieces.of([stage.duration for stage in self.stages], [stage.rate for stage in self.stages])
        return pieces.times(points_below(float(pieces.expected[-1]), self.within, rng)[:n])


class Varying(Section):
    """What arrivals of a changing rate share: gaps that are exponential for the rate of the moment (`within: poisson`) or even,
    and an end after `duration`; without one, `requests` says how many there are."""

    within: Literal["poisson", "constant"] = "poisson"
    duration: PositiveDuration | None = None

    @property
    @abstractmethod
    def mean_rate(self) -> float:
        """Requests per second in the long run."""

    @property
    def shortest(self) -> float:
        """Seconds that the rate stays on one line, on average."""
        return math.inf

    @abstractmethod
    def pieces(self, seconds: float, rng: Generator) -> Pieces:
        """The rate for at least so many seconds; what it draws for fewer is the beginning of what it draws for more."""

    def draw(self, n: int | None, rng: Generator) -> Times:
        """Arrival times in ns: n of them, or all that fall into the duration, but at most n."""
        seed = int(rng.integers(1 << 62))  # of the rate itself: how many requests there are must not move it
        if self.duration is not None:
            pieces = self._covering(self.duration, seed).until(self.duration)
            return pieces.times(points_below(float(pieces.expected[-1]), self.within, rng)[:n])
        if n is None:
            raise InputError("workload.requests: is required where arrivals have no duration")
        points = np.arange(n, dtype=np.float64) if self.within == "constant" else np.cumsum(rng.standard_exponential(n))
        seconds = 1.01 * float(points[-1]) / self.mean_rate + 1.0
        pieces = self._covering(seconds, seed)
        while pieces.expected[-1] <= points[-1]:
            seconds *= 2
            pieces = self._covering(seconds, seed)
        return pieces.times(points)

    def _covering(self, seconds: float, seed: int) -> Pieces:
        if not seconds <= 2 * CENTURY:
            raise InputError("workload.arrivals: at this rate the last request is sent in more than a hundred years")
        if seconds > _MOST_PIECES * self.shortest:
            raise InputError(
                f"workload.arrivals: the rate changes more than {_MOST_PIECES:,} times before the last request; "
                "make its periods longer"
            )
        return self.pieces(seconds, np.random.default_rng(seed))


class Ramp(Varying):
    """A rate that rises or falls in a straight line, and ends with its duration."""

    process: Literal["ramp"]
    start_rate: RateOrZero
    end_rate: RateOrZero
    duration: PositiveDuration

    @model_validator(mode="after")
    def _not_silent(self) -> Ramp:
        if not self.start_rate and not self.end_rate:
            raise misplaced("both rates are 0: nothing would ever be sent", "end_rate")
        check_expected(self.mean_rate * self.duration)
        return self

    @property
    def mean_rate(self) -> float:
        return (self.start_rate + self.end_rate) / 2

    def pieces(self, seconds: float, rng: Generator) -> Pieces:
        return Pieces.of([self.duration], [self.start_rate], [self.end_rate])


class Spike(Varying):
    """A steady rate with one burst: `peak_rate` from `start` on, for `length`."""

    process: Literal["spike"]
    rate: Rate
    peak_rate: Rate
    start: Duration
    length: PositiveDuration

    @model_validator(mode="after")
    def _is_one(self) -> Spike:
        if self.peak_rate <= self.rate:
            raise misplaced(
                f"found {self.peak_rate:g}, but a spike is higher than its base rate {self.rate:g}", "peak_rate"
            )
        if self.duration is not None:
            if self.start + self.length > self.duration:
                raise misplaced("found a spike that begins or ends after the duration", "start")
            check_expected(self.rate * self.duration + (self.peak_rate - self.rate) * self.length)
        return self

    @property
    def mean_rate(self) -> float:
        return self.rate

    def pieces(self, seconds: float, rng: Generator) -> Pieces:
        durations = np.array([self.start, self.length, max(seconds - self.start - self.length, 0.0)])
        kept = durations > 0
        rates = np.array([self.rate, self.peak_rate, self.rate])
        return Pieces.of(durations[kept], rates[kept])


class Diurnal(Varying):
    """A rate that varies over the day and comes back the next one.

    Args:
        rate: its mean over a period.
        peak_to_mean: a sine, lowest at the beginning of the period and highest in its middle, where it is so many times the mean.
        factors: instead of a sine, shares of equal parts of the period (24 of them are a day's hours), scaled to the mean.
        phase: how far into the period the run begins: 9h begins at nine in the morning.
    """

    process: Literal["diurnal"]
    rate: Rate
    peak_to_mean: float | None = None
    factors: Annotated[tuple[Annotated[float, Field(ge=0, le=1e9)], ...] | None, Field(strict=False, min_length=2)] = (
        None
    )
    period: PositiveDuration = _DAY
    phase: Duration = 0.0

    @model_validator(mode="after")
    def _has_a_shape(self) -> Diurnal:
        if (self.peak_to_mean is None) == (self.factors is None):
            raise misplaced("needs peak_to_mean (a sine) or factors, one of them", "peak_to_mean")
        if self.peak_to_mean is not None and not 1 <= self.peak_to_mean <= 2:
            why = "a sine peaks at 1 to 2 times its mean; for a sharper peak give factors"
            raise misplaced(f"found {self.peak_to_mean:g}, but {why}", "peak_to_mean")
        if self.factors is not None and not any(self.factors):
            raise misplaced("every factor is 0: nothing would ever be sent", "factors")
        if self.phase >= self.period:
            raise misplaced(f"found {self.phase:g} s, but a period has {self.period:g} s", "phase")
        if self.duration is not None:
            check_expected(self.rate * self.duration)
        return self

    @property
    def mean_rate(self) -> float:
        return self.rate

    @property
    def shortest(self) -> float:
        return self.period / (_SINE if self.factors is None else len(self.factors))

    def pieces(self, seconds: float, rng: Generator) -> Pieces:
        if self.factors is not None:
            shares = np.array(self.factors)
            begins = ends = self.rate * shares / shares.mean()
        else:
            assert self.peak_to_mean is not None
            turn = np.arange(_SINE) / _SINE
            begins = self.rate * (1 - (self.peak_to_mean - 1) * np.cos(2 * np.pi * turn))
            ends = np.roll(begins, -1)
        day = Pieces.of(np.full(len(begins), self.shortest), begins, ends)
        return day.repeated(math.ceil((self.phase + seconds) / self.period) + 1).after(self.phase)
