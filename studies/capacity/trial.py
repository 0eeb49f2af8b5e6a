"""Runs of one scenario under more and more seeds, or anew and longer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scenarios.objectives import Objective
from scenarios.schema import Scenario
from scenarios.workload_spec import WorkloadSpec
from studies import workers
from studies.capacity.evidence import Evidence, gather


@dataclass
class Trial:
    """Runs of one scenario so far. length: requests of a run; None for those of the scenario. alike: the seed changes nothing."""

    scenario: Scenario
    objectives: tuple[Objective, ...]
    length: int | None
    processes: int | None
    found: list[Evidence] = field(default_factory=list)
    alike: bool = False
    runs: int = 0
    cpu_seconds: float = 0.0

    def grow(self, seeds: int) -> None:
        """Runs the seeds that are missing; one only where the seed changes nothing."""
        seeds = 1 if self.alike else seeds
        base = self.scenario if self.length is None else with_requests(self.scenario, self.length)
        more = [base.model_copy(update={"seed": base.seed + k}) for k in range(len(self.found), seeds)]
        done = dict(workers.each(gather, [(one, self.objectives) for one in more], self.processes))
        self.found += [done[k] for k in range(len(more))]
        self.runs += len(more)
        self.cpu_seconds += sum(one.cpu_seconds for one in done.values())
        if len(self.found) > 1 and all(_outcome(one) == _outcome(self.found[0]) for one in self.found):
            self.alike = True
            del self.found[1:]

    def lengthen(self, times: int) -> None:
        """Starts again with longer runs."""
        assert self.length is not None
        self.length, self.found = times * self.length, []


def with_requests(scenario: Scenario, requests: int) -> Scenario:
    """The same scenario with another number of requests; of a mix, every part in proportion."""
    spec = scenario.workload
    if spec.mix is None:
        return scenario.model_copy(update={"workload": _long(spec, requests)})
    stated = sum(part.requests or 0 for part in spec.mix.values())
    parts = {
        name: _long(part, max(1, round(requests * (part.requests or 0) / stated))) for name, part in spec.mix.items()
    }
    return scenario.model_copy(update={"workload": spec.model_copy(update={"mix": parts})})


def _long(spec: WorkloadSpec, requests: int) -> WorkloadSpec:
    return spec.model_copy(update={"requests": requests})


def _outcome(found: Evidence) -> tuple[Any, ...]:
    """What of a run would differ if anything that was drawn did."""
    keys = ("total_input_tokens", "total_output_tokens", "duration", "mean_e2el_ms", "mean_ttft_ms")
    return (found.values, found.growth, *(found.row.get(key) for key in keys))
