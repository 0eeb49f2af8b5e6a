"""Judges that know the answer, so that a search is seen without a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import scenarios
from scenarios.objectives import Objective, parse_objective
from scenarios.schema import Scenario
from studies.capacity.space import usd_per_hour


@dataclass
class Known:
    """What a search reads of an attainment."""

    met: bool | None
    worst: float
    rows: list[dict[str, Any]]
    seeds: tuple[int, ...]
    intervals: dict[str, Any] = field(default_factory=dict)
    alike: bool = False
    runs: int = 0


@dataclass
class KnowingJudge:
    """Says what `worst` says of a scenario: met up to 1, not decided where it is within `unsure` of it and fewer than `enough` seeds
    are allowed. asked: scenarios in the order in which they were judged."""

    worst: Callable[[Scenario], float]
    unsure: float = 0.0
    enough: int = 10
    open_within: float = 0.0
    """Of the limit: never decided."""
    unlucky: bool = False
    """Own seeds are kinder than fresh ones."""
    asked: list[Scenario] = field(default_factory=list)
    objectives: tuple[Objective, ...] = (parse_objective("ttft_p99 <= 500ms"),)
    confidence: float = 0.95

    def __call__(self, scenario: Scenario, most: int | None = None) -> Known:
        self.asked.append(scenario)
        ratio = self.worst(scenario)
        seeds = tuple(range(scenario.seed, scenario.seed + (most or self.enough)))
        met: bool | None = ratio <= 1
        if abs(ratio - 1) < self.unsure and len(seeds) < self.enough:
            met = None
        if abs(ratio - 1) < self.open_within:
            met = None
        if self.unlucky and scenario.seed > 1000:
            met = False
        row = {"usd_per_hour": usd_per_hour(scenario), "p99_ttft_ms": 500 * ratio}
        return Known(met, ratio, [row | {"usd_per_1m_output_tokens": 1.0 + 0.001 * (s % 7)} for s in seeds], seeds)


def azure(*overrides: str) -> Scenario:
    """The shipped chat scenario, in small."""
    return scenarios.load("azure-conversation", overrides=["workload.requests=50", *overrides])
