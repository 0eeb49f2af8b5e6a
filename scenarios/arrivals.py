"""When requests are sent. To add a process: write a class here and put it into `Arrivals`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from scenarios.errors import InputError, misplaced
from scenarios.fields import CENTURY, Duration, PositiveDuration, Rate, RateOrZero, Section, ShortForm

Times = NDArray[np.int64]
MOST_REQUESTS = 10_000_000


def _ns(seconds: NDArray[np.float64]) -> Times:
    if seconds.size and not seconds.max() <= CENTURY:
        raise InputError("workload.arrivals: at this rate the last request is sent in more than a hundred years")
    return np.rint(seconds * 1e9).astype(np.int64)


class Poisson(Section):
    """A true Poisson process: independent exponential gaps."""

    process: Literal["poisson"]
    rate: Rate

    def draw(self, n: int, rng: Generator) -> Times:
        """Arrival times of n requests in ns, non-decreasing, `(n,)`."""
        return _ns(np.cumsum(rng.standard_exponential(n)) / self.rate)


class Gamma(Section):
    """Gamma gaps, as in vLLM's benchmark: burstiness 1 is Poisson, below it bursts, above it is more regular."""

    process: Literal["gamma"]
    rate: Rate
    burstiness: float = Field(default=1.0, ge=1e-3, le=1e6)

    def draw(self, n: int, rng: Generator) -> Times:
        return _ns(np.cumsum(rng.standard_gamma(self.burstiness, n)) / (self.rate * self.burstiness))


class Vllm(Section):
    """As vLLM's benchmark sends: gamma gaps, rescaled so that the last request lands exactly at n / rate."""

    process: Literal["vllm"]
    rate: Rate
    burstiness: float = Field(default=1.0, ge=1e-3, le=1e6)

    def draw(self, n: int, rng: Generator) -> Times:
        times = np.cumsum(rng.standard_gamma(self.burstiness, n))
        return _ns(times * (n / self.rate / times[-1])) if n else _ns(times)


class Constant(Section):
    """Equal gaps; the first request is sent at 0."""

    process: Literal["constant"]
    rate: Rate

    def draw(self, n: int, rng: Generator) -> Times:
        return _ns(np.arange(n) / self.rate)


class AllAtOnce(Section):
    """Everything is there at time 0."""

    process: Literal["all_at_once"] = "all_at_once"

    def draw(self, n: int, rng: Generator) -> Times:
        return np.zeros(n, dtype=np.int64)


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

    def draw(self, n: int | None, rng: Generator) -> Times:
        """Every arrival inside the stages, at most n of them."""
        # Cumulated expected arrivals are piecewise linear in time; arrivals are its inverse at 0, 1, 2, ... or at the
        # points of a Poisson process of rate 1. Rounding keeps 0.1/s x 30 s at exactly 3.
        rates = np.array([stage.rate for stage in self.stages])
        ends = np.cumsum([stage.duration for stage in self.stages])
        starts = ends - [stage.duration for stage in self.stages]
        expected = np.round(np.cumsum(rates * (ends - starts)), 9)
        points = self._points(float(expected[-1]), rng)[:n]
        # A point on a border belongs to the next stage that sends anything.
        stage = np.searchsorted(expected, points, side="right")
        before = np.concatenate([[0.0], expected[:-1]])[stage]
        return _ns(starts[stage] + (points - before) / rates[stage])

    def _points(self, total: float, rng: Generator) -> NDArray[np.float64]:
        if self.within == "constant":
            return np.arange(int(np.ceil(total)), dtype=np.float64)
        drawn = np.cumsum(rng.standard_exponential(int(total + 10 * np.sqrt(total)) + 20))
        while drawn[-1] < total:
            more = np.cumsum(rng.standard_exponential(len(drawn)))
            drawn = np.concatenate([drawn, drawn[-1] + more])
        return drawn[drawn < total]


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
    return _ns(rng.standard_exponential(n) * pause.mean)


NO_PAUSE = FixedPause.model_validate({"distribution": "fixed", "duration": "0s"})


class ClosedLoop(Section):
    """So many clients; each sends its next request when its last one has ended and it has paused."""

    process: Literal["closed_loop"]
    concurrency: int = Field(ge=1)
    think_time: Pause = NO_PAUSE

    def draw(self, n: int, rng: Generator) -> Times:
        """-1 everywhere: the run decides."""
        return np.full(n, -1, dtype=np.int64)


def _named(value: Any) -> Any:
    return {"process": value} if isinstance(value, str) else value


Arrivals = Annotated[
    Poisson | Gamma | Vllm | Constant | AllAtOnce | Staged | ClosedLoop,
    Field(discriminator="process"),
    BeforeValidator(_named),
    ShortForm({"enum": ["all_at_once"]}),
]
