"""With batch size 1 the model reproduces the waiting times of M/D/1, M/M/1 and M/G/1 within their confidence intervals.

Arrivals are a Poisson process and a request is served alone, for a time that follows from its lengths. What theory says of a load
rho = rate * E[S]:

- M/G/1, first come first served: the mean wait is rate * E[S^2] / (2 (1 - rho)) (Pollaczek 1930, Khinchine 1932); M/D/1, where
  E[S^2] = E[S]^2, and M/M/1, where it is 2 E[S]^2, are cases of it. Everybody has to wait with chance rho, whatever S is.
- M/M/1: a request waits longer than t with chance rho * exp(-(1 - rho) t / E[S]).
- M/G/1 with classes that do not interrupt each other (Cobham 1954): of the classes 1, 2, ..., k waits
  rate * E[S^2] / (2 (1 - a) (1 - b)), where a is the load of the classes before k, and b that load and its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import stats

from scenarios.arrivals import Poisson
from scenarios.workload import Workload
from serving.config import EngineConfig
from sim.cluster import simulate
from sim.profile_cost import ProfileCost
from tests.laws.alone import alone
from tests.laws.straight import straight_cost

Ints, Times = NDArray[np.int64], NDArray[np.float64]

ENGINE = EngineConfig(
    8192, max_model_len=120_000, max_num_seqs=1, max_num_batched_tokens=120_000, enable_prefix_caching=False
)
RUNS, REQUESTS, WARM_UP = 20, 10_000, 1_000

PER_TOKEN = straight_cost(step=0, token=10e3)
"""Prompts that are answered with one token take 10 us a token, and nothing else."""

PER_STEP = straight_cost(step=1e6)
"""Answers take 1 ms a token; prompts come with the first."""


@dataclass(frozen=True)
class Queue:
    """Lengths of n requests, and E[S] and E[S^2] in seconds of what they take."""

    cost: ProfileCost
    prompts: Callable[[Generator, int], Ints]
    answers: Callable[[Generator, int], Ints]
    mean: float
    square: float

    def drawn(self, seed: int, load: float, n: int = REQUESTS) -> Workload:
        rng = np.random.default_rng(seed)
        arrivals = Poisson.model_validate({"process": "poisson", "rate": load / self.mean}).draw(n, rng)
        prompts, answers = self.prompts(rng, n), self.answers(rng, n)
        lengths = {"prompt_tokens": prompts, "output_tokens": answers, "max_tokens": answers}
        return replace(alone(1, 1, *arrivals.tolist()), **lengths)

    def waits(self, seed: int, load: float) -> Times:
        """Seconds from arrival to the first step of an independent run, once it is warm."""
        return waited(ENGINE, self.drawn(seed, load), self.cost)


def waited(engine: EngineConfig, workload: Workload, cost: ProfileCost) -> Times:
    r = simulate(engine, workload, cost).requests
    return np.asarray(((r["scheduled_ns"] - r["arrival_ns"]) / 1e9)[WARM_UP:])


@cache
def runs_of(name: str, load: float) -> list[Times]:
    return [QUEUES[name].waits(seed, load) for seed in range(RUNS)]


def always(tokens: int) -> Callable[[Generator, int], Ints]:
    return lambda rng, n: np.full(n, tokens)


def _exponential(rng: Generator, n: int) -> Ints:
    return np.ceil(rng.standard_exponential(n) * 1000).astype(np.int64)


def _lognormal(rng: Generator, n: int) -> Ints:
    """Median 500 tokens, sigma 0.8."""
    return np.rint(500 * np.exp(0.8 * rng.standard_normal(n))).clip(1, 100_000).astype(np.int64)


def _two_kinds(rng: Generator, n: int) -> Ints:
    """One prompt in ten is of 5,000 tokens, the others of 500."""
    return np.where(rng.random(n) < 0.1, 5000, 500)


def _geometric(rng: Generator, n: int) -> Ints:
    """Of mean 10: the only lengths that forget how long they have been."""
    return rng.geometric(1 / 10, n)


TOKEN = 10e-6
QUEUES = {
    "M/D/1": Queue(PER_TOKEN, always(1000), always(1), 0.01, 0.01**2),
    "M/M/1": Queue(PER_TOKEN, _exponential, always(1), 0.01, 2 * 0.01**2),
    "M/G/1, answers": Queue(PER_STEP, always(50), _geometric, 0.01, (2 * 10**2 - 10) * 1e-6),
    "M/G/1, lognormal": Queue(
        PER_TOKEN, _lognormal, always(1), 500 * np.exp(0.32) * TOKEN, (500 * TOKEN) ** 2 * np.exp(1.28)
    ),
    "M/G/1, two kinds": Queue(PER_TOKEN, _two_kinds, always(1), 950 * TOKEN, (0.9 * 500**2 + 0.1 * 5000**2) * TOKEN**2),
}
LOADS = (0.4, 0.7)
CASES = [(name, load) for name in QUEUES for load in LOADS if load == 0.7 or name.startswith(("M/D/1", "M/M/1"))]

CHECKS = 2 * len(CASES) + len(LOADS) + 3
LEVEL = 1 - 0.05 / CHECKS
"""Of each interval, so that theory lies in all of them at once with 95 % (Bonferroni)."""


def assert_agrees(theory: float, samples: list[float]) -> None:
    """Theory lies in the interval of the mean of independent runs, and the interval says something."""
    half = stats.t.ppf((1 + LEVEL) / 2, len(samples) - 1) * stats.sem(samples)
    assert half < 0.2 * theory, f"+- {half:g} around {theory:g} says nothing"
    assert np.mean(samples) == pytest.approx(theory, abs=half)


@pytest.mark.parametrize(("name", "load"), CASES)
def test_waits_are_what_pollaczek_and_khinchine_say(name: str, load: float) -> None:
    queue, runs = QUEUES[name], runs_of(name, load)
    assert_agrees(load / queue.mean * queue.square / (2 * (1 - load)), [w.mean() for w in runs])
    assert_agrees(load, [float((w > 0).mean()) for w in runs])


@pytest.mark.parametrize("load", LOADS)
def test_long_waits_are_exponentially_rare(load: float) -> None:
    t = QUEUES["M/M/1"].mean / (1 - load)
    runs = runs_of("M/M/1", load)
    assert_agrees(load * np.exp(-1), [float((w > t).mean()) for w in runs])


def test_those_of_better_rank_wait_less_as_cobham_says() -> None:
    queue, load, shares = QUEUES["M/D/1"], 0.7, (0.2, 0.3, 0.5)
    samples: list[list[float]] = [[], [], []]
    for seed in range(RUNS // 2):
        ranks = np.random.default_rng(1000 + seed).choice(3, REQUESTS // 2, p=shares)
        workload = replace(queue.drawn(seed, load, REQUESTS // 2), priority=ranks)
        waits = waited(replace(ENGINE, policy="priority"), workload, queue.cost)
        for rank in range(3):
            samples[rank].append(float(waits[ranks[WARM_UP:] == rank].mean()))
    remaining = load / queue.mean * queue.square / 2  # of whoever is being served when somebody comes
    better = 0.0
    for share, found in zip(shares, samples, strict=True):
        own = better + share * load
        assert_agrees(remaining / ((1 - better) * (1 - own)), found)
        better = own
