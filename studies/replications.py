"""Replications: one scenario under several seeds, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.schema import Scenario
from studies import workers
from studies.run import simulate
from studies.statistics import intervals
from studies.statistics.differences import Difference, difference
from studies.statistics.directions import better
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.sweeps.cells import Row, figures


@dataclass(frozen=True)
class Replications:
    """A scenario and its figures, a row a seed. Two of them with the same seeds are paired: they drew the same requests."""

    scenario: Scenario
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]

    def values(self, key: str) -> list[float | None]:
        """A figure of every seed; None where a run has none."""
        return [row.get(key) for row in self.rows]

    def by_seed(self, key: str) -> dict[int, float | None]:
        """A figure by seed; None where a run has none."""
        return dict(zip(self.seeds, self.values(key), strict=True))

    def difference(self, other: Replications, key: str, confidence: float = CONFIDENCE) -> Difference:
        """What another has more than this one on the same seeds: `other` is better or worse than this one."""
        return difference(self.by_seed(key), other.by_seed(key), better=better(key), confidence=confidence)

    def interval(self, key: str, confidence: float = CONFIDENCE) -> Interval:
        """Mean over seeds with Student's t interval."""
        return intervals.mean(self.values(key), confidence)


def seeds_of(scenario: Scenario, count: int) -> tuple[int, ...]:
    """The scenario's own seed and those that follow it."""
    return tuple(range(scenario.seed, scenario.seed + count))


def replicate(scenario: Scenario, seeds: int | Sequence[int] = 5, *, processes: int | None = None) -> Replications:
    """Simulates a scenario once a seed. processes: side by side; all processors by default."""
    chosen = seeds_of(scenario, seeds) if isinstance(seeds, int) else tuple(seeds)
    found = dict(workers.each(_figures_of, [scenario.model_copy(update={"seed": seed}) for seed in chosen], processes))
    return Replications(scenario, chosen, tuple(found[i] for i in range(len(chosen))))


def _figures_of(scenario: Scenario) -> Row:
    return figures(simulate(scenario))
