"""Replications: one scenario under several seeds, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scenarios.schema import Scenario
from studies import workers
from studies.run import loaded, simulate
from studies.statistics import intervals
from studies.statistics.differences import Difference, difference
from studies.statistics.directions import better
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.statistics.warm_figures import WarmUp, check_warm_up, warm_figures
from studies.statistics.within_run import within_run
from studies.sweeps.cells import Row, figures, figures_of

NAMING = ("point", "seed", "scenario_hash")
"""What of a row names its run."""


ALIKE = "every seed gave the same run: seeds change nothing here, so that these are no replications"


@dataclass(frozen=True)
class Replications:
    """A scenario and its figures, a row a seed. Two of them with the same seeds are paired: they drew the same requests."""

    scenario: Scenario
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]

    @property
    def alike(self) -> bool:
        """Whether seeds change nothing: requests that are replayed or given, and nothing else is drawn."""
        return alike(self.rows)

    def values(self, key: str) -> list[float | None]:
        """A figure of every seed; None where a run has none."""
        return [row.get(key) for row in self.rows]

    def by_seed(self, key: str) -> dict[int, float | None]:
        """A figure by seed; None where a run has none."""
        return dict(zip(self.seeds, self.values(key), strict=True))

    def interval(self, key: str, confidence: float = CONFIDENCE) -> Interval:
        """Mean over seeds with Student's t interval; refused where they are alike: one of width zero would lie. What one run alone
        knows then, `within` says."""
        found = intervals.mean(self.values(key), confidence)
        if self.alike:
            return replace(found, low=None, high=None, n=1, refused=ALIKE)
        if key.endswith("good_request_fraction") and found.low is not None and found.high is not None:
            return replace(
                found, low=max(found.low, 0.0), high=min(found.high, 1.0)
            )  # no part is less than none or more than all
        return found

    def within(self, key: str, confidence: float = CONFIDENCE) -> Interval:
        """What the first seed's run alone knows of a figure once it is warm (`studies.statistics.within_run`): of a replayed trace too."""
        run = simulate(self.scenario.model_copy(update={"seed": self.seeds[0]}))
        return within_run(run, key, confidence)

    def difference(self, other: Replications, key: str, confidence: float = CONFIDENCE) -> Difference:
        """What another has more than this one on the same seeds: `other` is better or worse than this one."""
        return difference(self.by_seed(key), other.by_seed(key), better=better(key), confidence=confidence)


def alike(rows: Sequence[Row]) -> bool:
    """Whether rows of several seeds have the same figures throughout."""
    figures_of = [{key: value for key, value in row.items() if key not in NAMING} for row in rows]
    return len(rows) > 1 and all(found == figures_of[0] for found in figures_of)


def seeds_of(scenario: Scenario, count: int) -> tuple[int, ...]:
    """The scenario's own seed and those that follow it."""
    return tuple(range(scenario.seed, scenario.seed + count))


def replicate(
    scenario: Scenario | str | Path,
    seeds: int | Sequence[int] = 5,
    *,
    processes: int | None = None,
    warm_up: WarmUp | None = None,
) -> Replications:
    """Simulates a scenario, its file or shipped name, once a seed.

    processes: side by side; all processors by default. warm_up: seconds from the first request on, or `mser`: latencies by request and
    the good fraction are then of the requests sent after it (`studies.statistics.warm_figures`); throughputs, ITL and costs stay those of the
    whole run.

    Raises:
        InputError: there is no such scenario, or it is wrong. ValueError: a seed twice, or another warm-up.
    """
    scenario = loaded(scenario)
    chosen = seeds_of(scenario, seeds) if isinstance(seeds, int) else tuple(seeds)
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"seeds: found {list(chosen)}, but the same seed twice is no second replication")
    if warm_up is not None:
        check_warm_up(warm_up)
    items = [(scenario.model_copy(update={"seed": seed}), warm_up) for seed in chosen]
    found = dict(workers.each(_figures_of, items, processes))
    return Replications(scenario, chosen, tuple(found[i] for i in range(len(chosen))))


def _figures_of(item: tuple[Scenario, WarmUp | None]) -> Row:
    scenario, warm_up = item
    if warm_up is None:
        return figures_of(scenario)
    run = simulate(scenario)
    return figures(run) | warm_figures(run, warm_up)
