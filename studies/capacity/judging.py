"""What decides whether a configuration will do: objectives, and how sure one must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from scenarios.objectives import Objective
from scenarios.schema import Scenario
from studies.statistics.intervals import CONFIDENCE

if TYPE_CHECKING:
    from studies.capacity.attainment import Attainment


class Judge(Protocol):
    """Whether scenarios keep objectives."""

    @property
    def objectives(self) -> tuple[Objective, ...]: ...

    @property
    def confidence(self) -> float: ...

    def __call__(self, scenario: Scenario, most: int | None = None) -> Attainment:
        """most: seeds after which an open question stays open; the judge's own limit by default."""
        ...


@dataclass(frozen=True)
class BySimulation:
    """Decides by `studies.capacity.attain.attain`, whose arguments these are."""

    objectives: tuple[Objective, ...]
    confidence: float = CONFIDENCE
    requests: int | None = None
    processes: int | None = None
    seeds: int | None = None
    """At most; by default as many as `attain` takes."""
    tell: Callable[[str], None] | None = field(default=None, compare=False)

    def __call__(self, scenario: Scenario, most: int | None = None) -> Attainment:
        from studies.capacity.attain import MOST, attain

        limit = MOST if self.seeds is None else self.seeds
        return attain(
            scenario,
            self.objectives,
            self.confidence,
            most=limit if most is None else min(most, limit),
            requests=self.requests,
            processes=self.processes,
            tell=self.tell,
        )
