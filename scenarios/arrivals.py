"""When requests are sent. To add a process: write a class here and put it into `Arrivals`."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from pydantic import BeforeValidator, Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Duration, PositiveDuration, Rate, RateOrZero, Section, ShortForm
from scenarios.varying_rate import (
    Diurnal,
    Pieces,
    Ramp,
    Spike,
    Staged,
    Times,
    Varying,
    check_expected,
    to_ns,
)


class Poisson(Section):
    """A true Poisson process: independent exponential gaps."""

    process: Literal["poisson"]
    rate: Rate

    def draw(self, n: int, rng: Generator) -> Times:
        """Arrival times of n requests in ns, non-decreasing, `(n,)`."""
        return to_ns(np.cumsum(rng.standard_exponential(n)) / self.rate)


class Gamma(Section):
    """Gamma gaps, as in vLLM's benchmark: burstiness 1 is Poisson, below it bursts, above it is more regular."""

    process: Literal["gamma"]
    rate: Rate
    burstiness: float = Field(default=1.0, ge=1e-3, le=1e6)

    def draw(self, n: int, rng: Generator) -> Times:
        return to_ns(np.cumsum(rng.standard_gamma(self.burstiness, n)) / (self.rate * self.burstiness))


class Vllm(Section):
    """As vLLM's benchmark sends: gamma gaps, rescaled so that the last request lands exactly at n / rate."""

    process: Literal["vllm"]
    rate: Rate
    burstiness: float = Field(default=1.0, ge=1e-3, le=1e6)

    def draw(self, n: int, rng: Generator) -> Times:
        times = np.cumsum(rng.standard_gamma(self.burstiness, n))
        return to_ns(times * (n / self.rate / times[-1])) if n else to_ns(times)


class Constant(Section):
    """Equal gaps; the first request is sent at 0."""

    process: Literal["constant"]
    rate: Rate

    def draw(self, n: int, rng: Generator) -> Times:
        return to_ns(np.arange(n) / self.rate)


class AllAtOnce(Section):
    """Everything is there at time 0."""

    process: Literal["all_at_once"] = "all_at_once"

    def draw(self, n: int, rng: Generator) -> Times:
        return np.zeros(n, dtype=np.int64)


class ExponentialPause(Section):
    """Pauses that vary: exponential with this mean."""

    distribution: Literal["exponential"]
    mean: PositiveDuration


class FixedPause(Section):
    distribution: Literal["fixed"]
    duration: Duration


def _pause(value: Any) -> Any:
    return {"distribution": "fixed", "duration": value} if not isinstance(value, dict | Section) else value


Pause = Annotated[
    FixedPause | ExponentialPause,
    Field(discriminator="distribution"),
    BeforeValidator(_pause),
    ShortForm({"type": "string"}),
]
"""Time that a person or client waits before the next request: `5s`, or exponential around a mean."""


def draw_pauses(pause: FixedPause | ExponentialPause, n: int, rng: Generator) -> Times:
    """n pauses in ns, `(n,)`."""
    if isinstance(pause, FixedPause):
        return np.full(n, round(pause.duration * 1e9), dtype=np.int64)
    return to_ns(rng.standard_exponential(n) * pause.mean)


def mean_pause(pause: FixedPause | ExponentialPause) -> float:
    """Seconds."""
    return pause.duration if isinstance(pause, FixedPause) else pause.mean


NO_PAUSE = FixedPause.model_validate({"distribution": "fixed", "duration": "0s"})


class ClosedLoop(Section):
    """So many clients; each sends its next request when its last one has ended and it has paused."""

    process: Literal["closed_loop"]
    concurrency: int = Field(ge=1)
    think_time: Pause = NO_PAUSE

    def draw(self, n: int, rng: Generator) -> Times:
        """-1 everywhere: the run decides."""
        return np.full(n, -1, dtype=np.int64)


class OnOff(Varying):
    """Bursts: `rate` while on, `off_rate` in between; how long each lasts is fixed, or exponential around a mean. With exponential
    times and silence in between it is the interrupted Poisson process of telephone traffic.

    Args:
        on, off: how long a burst and the time after it last. The run begins with a burst.
    """

    process: Literal["on_off"]
    rate: Rate
    off_rate: RateOrZero = 0.0
    on: Pause
    off: Pause

    @model_validator(mode="after")
    def _alternates(self) -> OnOff:
        for name in ("on", "off"):
            if not mean_pause(getattr(self, name)) > 0:
                raise misplaced("found 0s, but it must last some time", name)
        if self.off_rate >= self.rate:
            raise misplaced(
                f"found {self.off_rate:g}, but between bursts it is below the rate {self.rate:g}", "off_rate"
            )
        if self.duration is not None:
            check_expected(self.mean_rate * self.duration)
        return self

    @property
    def mean_rate(self) -> float:
        on, off = mean_pause(self.on), mean_pause(self.off)
        return (self.rate * on + self.off_rate * off) / (on + off)

    @property
    def shortest(self) -> float:
        return (mean_pause(self.on) + mean_pause(self.off)) / 2

    def pieces(self, seconds: float, rng: Generator) -> Pieces:
        on, off = rng.spawn(2)  # each of its own, so that a longer run begins as a shorter one does
        times = np.zeros((0, 2))
        while times.sum() < seconds:
            count = math.ceil(seconds / self.shortest / 2) + 16
            more = np.column_stack(
                [draw_pauses(pause, count, own) / 1e9 for pause, own in ((self.on, on), (self.off, off))]
            )
            times = np.concatenate([times, more])
        durations = times.reshape(-1)
        kept = durations > 0
        return Pieces.of(durations[kept], np.tile([self.rate, self.off_rate], len(times))[kept])


def _named(value: Any) -> Any:
    return {"process": value} if isinstance(value, str) else value


Arrivals = Annotated[
    Poisson | Gamma | Vllm | Constant | AllAtOnce | Staged | Ramp | Spike | Diurnal | OnOff | ClosedLoop,
    Field(discriminator="process"),
    BeforeValidator(_named),
    ShortForm({"enum": ["all_at_once"]}),
]


def knows_its_number(arrivals: object) -> bool:
    """Whether arrivals end by themselves, so that nobody must say how many requests there are."""
    return getattr(arrivals, "duration", None) is not None
