"""What steps take more or less than their shape says: drawn from a profile's own residuals, one step much like the one before.

A factor is a pure function of seed, replica and number of the step: a leap that is cut, another scheduler of the same decisions or
a run that stops early draws the same. An AR(1) process of normal scores gives the correlation, the residuals' quantiles
the distribution, and the mean of factors is 1.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from itertools import accumulate
from math import erf, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.attribution import Shares
from serving.plan import StepResult, StepShape
from sim.acceptance import Acceptance
from sim.cost import CostModel
from sim.drafting import Drafting
from sim.host_link import HostLink
from sim.profile_parts import Noise
from sim.replica import CostExecutor

BLOCK = 4096  # steps drawn at a time
_STREAM = zlib.crc32(b"noise")


class StepNoise:
    """Factors of the steps of one replica."""

    def __init__(self, noise: Noise, seed: int, replica: int) -> None:
        self._noise = noise
        self._key = (seed, _STREAM, replica)
        self._blocks: dict[int, list[float]] = {}

    def factor(self, step: int) -> float:
        """What the duration of a step is multiplied by."""
        number, at = divmod(step, BLOCK)
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) > 1:  # a run looks back by a leap at most
                del self._blocks[min(self._blocks)]
            block = self._blocks[number] = self._draw(number)
        return block[at]

    def scaled(self, step: int, ns: int) -> int:
        """The duration of a step that would last `ns`."""
        return int(ns * self.factor(step) + 0.5)

    def _draw(self, number: int) -> list[float]:
        """The factors of a block. Its scores go on from those of the block before, whose own start, a block further back, they have
        forgotten (to the last bit, up to a correlation of 0.99)."""
        noise, rho = self._noise, self._noise.correlation
        shocks = np.concatenate([self._shocks(number), self._shocks(number + 1)])
        shocks[1:] *= sqrt(1.0 - rho * rho)
        scores = list(accumulate(shocks.tolist(), lambda score, shock: rho * score + shock))[BLOCK:]
        ranks = np.array([0.5 + 0.5 * erf(score / sqrt(2.0)) for score in scores])
        quantiles = np.array(noise.quantiles)
        found = np.interp(ranks, np.linspace(0.0, 1.0, len(quantiles)), quantiles)
        factors: list[float] = (1.0 + (found - noise.mean)).tolist()
        return factors

    def _shocks(self, number: int) -> NDArray[np.float64]:
        return np.random.default_rng((*self._key, number)).standard_normal(BLOCK)


class Decides(Protocol):
    """A scheduler, as far as it counts steps. step: the one to be decided next."""

    step: int


class NoisyCost:
    """Step costs of a replica whose scheduler has decided the step that is asked for, or is about to: a leap of one step.

    Args:
        cost: without noise. noise: of this replica's steps. scheduler: says which step it is.
    """

    def __init__(self, cost: CostModel, noise: StepNoise, scheduler: Decides) -> None:
        self.name = cost.name
        self._cost, self._noise, self._scheduler = cost, noise, scheduler

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        ns = self._cost.decode_ns(sequences, context, longest)
        return self._noise.scaled(self._scheduler.step - 1, ns)

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        """The next step, which is not decided yet, and no further: no two steps lie on a line."""
        ns = self._cost.decode_ns(sequences, context, longest)
        return float(self._noise.scaled(self._scheduler.step, ns)), 0.0, context + 1.0

    def step_ns(self, shape: StepShape) -> int:
        return self._noise.scaled(self._scheduler.step - 1, self._cost.step_ns(shape))

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        first = self._scheduler.step
        steps = enumerate(self._cost.leap_ns(shape, n).tolist(), first)
        return np.array([self._noise.scaled(step, ns) for step, ns in steps], dtype=np.int64)

    def terms(self, shape: StepShape) -> dict[str, float]:
        return self._cost.terms(shape)

    def shares(
        self, steps: Mapping[str, NDArray[np.int64]], query: NDArray[np.int64], context: NDArray[np.int64]
    ) -> Shares:
        return self._cost.shares(steps, query, context)

    def extrapolation(self, shape: StepShape) -> str | None:
        return self._cost.extrapolation(shape)


class NoisyExecutor(CostExecutor):
    """An executor whose steps take what a cost model says, with noise. Proposing drafts is part of a step."""

    def __init__(
        self,
        cost: CostModel,
        noise: StepNoise,
        acceptance: Acceptance | None = None,
        drafting: Drafting | None = None,
        link: HostLink | None = None,
    ) -> None:
        super().__init__(cost, acceptance, drafting, link)
        self._noise = noise

    def collect(self) -> StepResult:
        step, result = self.plans[0].step, super().collect()
        duration = self._noise.scaled(step, result.duration_ns)
        return StepResult(duration, result.tokens, result.accepted, result.proposed)
