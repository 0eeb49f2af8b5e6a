"""How latency and throughput go with load, at a glance: some loads, each with a few short runs, and where objectives will break.

A picture within seconds, not an answer: `studies.capacity.search` decides, with as many and as long runs as that takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import scenarios
from scenarios.arrivals import ClosedLoop
from scenarios.load import Override
from scenarios.objectives import Objective
from scenarios.schema import Scenario
from studies.capacity import objectives as asked_for
from studies.capacity.attain import FIRST, attain
from studies.capacity.boundary import is_beyond
from studies.capacity.evidence import has_its_length
from studies.capacity.load import Load, load_of
from studies.capacity.search import APART, Capacity
from studies.capacity.trial import with_requests
from studies.run import loaded, simulated_figures
from studies.statistics.intervals import CONFIDENCE

if TYPE_CHECKING:
    from studies.progress import Progress

LOADS = 8
"""Loads at first."""
PARTS = (0.15, 1.3)
"""The lowest and the highest of them, as parts of the bound."""
ABOVE = 1.5
"""Times the scenario's own load that the bound is at least, where that load is carried."""
FARTHER = 3
"""Loads beyond these while nothing breaks, or while nothing holds."""
NEARER = 4
"""Loads between the highest that will do and the lowest that will not."""
NEAR = 1.06
"""Ratio of these two from which they are near enough."""
REQUESTS, IN_SESSIONS = 500, 1_500
"""Requests of a run at first. Conversations take longer until as many end as begin; in short runs of them everything seems to pile up."""
LONGER = 2
"""Times as long as runs may become where they say too little."""
SLOW = 1.0
"""CPU seconds of a load's runs from which it is worth it to begin processes for them."""
FLOOD = 20.0
"""Times the scenario's load that no engine carries."""


def outline(
    scenario: Scenario | str | Path,
    objectives: Sequence[Objective] | str | None = None,
    over: str | None = None,
    *,
    confidence: float = CONFIDENCE,
    requests: int | None = None,
    processes: int | None = None,
    progress: Progress | None = None,
    partial: Callable[[Capacity], None] | None = None,
) -> Capacity:
    """A capacity of which no load was decided (`tried` is empty): only the curve (`around`).

    Args:
        objectives, over, confidence: as `studies.capacity.search.highest_load` takes them. requests: of a run at first. Of a trace, the
            first so many; patterns keep their length. processes: side by side, where runs are slow. partial: gets it after every load.

    Raises:
        InputError: the scenario, an objective or the load is wrong.
    """
    base = loaded(scenario)
    load = load_of(_cut(base, requests), over)
    if isinstance(objectives, str):
        chosen = asked_for.parse(objectives)
    else:
        chosen = asked_for.of_scenario(base) if objectives is None else tuple(objectives)
    asked_for.check_promises(chosen, base)
    found = Capacity(load, chosen, confidence, APART - 1)
    length = requests or (IN_SESSIONS if _talks(base) else REQUESTS)
    _Outline(found, length, processes, progress, partial).run()
    return found


class _Outline:
    def __init__(
        self,
        found: Capacity,
        requests: int,
        processes: int | None,
        progress: Progress | None,
        partial: Callable[[Capacity], None] | None,
    ) -> None:
        self.found, self.requests, self.processes = found, requests, processes
        self.progress, self.partial = progress, partial
        self.done: set[float] = set()

    def run(self) -> None:
        found = self.found
        if self.requests > REQUESTS:  # something to show at once, replaced by what is better
            self.look(found.over.start, REQUESTS)
        self.look(found.over.start)
        most = bound(found.over, self.requests)
        if not self.beyond(found.rounded(found.over.start)):  # of short runs in sessions the bound is too low
            most = max(most, ABOVE * found.over.start)
        for x in spread(found.rounded, found.over.start, most):
            self.look(x)
        for _ in range(FARTHER):
            if any(self.beyond(x) for x in found.around):
                break
            self.look(1.6 * max(found.around))
        for _ in range(FARTHER):
            if not all(self.beyond(x) for x in found.around):
                break
            self.look(min(found.around) / 2.5)
        for _ in range(NEARER):
            gap = self.gap()
            if gap is None or gap[1] <= NEAR * gap[0]:
                break
            self.look(math.sqrt(gap[0] * gap[1]))

    def look(self, load: float, quickly: int | None = None) -> None:
        """Runs a load that was not run before, or was run quickly. quickly: with so many requests, and no more."""
        found, x = self.found, self.found.rounded(load)
        if x in self.done:
            return
        if self.progress is not None:
            self.progress(f"{found.over.said(x)}", min(0.97, len(self.done) / (LOADS + 0.75 * NEARER)))
        length = quickly or self.requests
        found.around[x] = attain(
            found.over.at(x), found.objectives, found.confidence, most=FIRST, processes=self.side_by_side(),
            requests=length, longest=length if quickly else LONGER * length,
        )  # fmt: skip
        if not quickly:
            self.done.add(x)
        if self.partial is not None:
            self.partial(found)

    def side_by_side(self) -> int | None:
        """Processes: the first load has only this one, so that it is there at once."""
        slow = sum(tried.cpu_seconds for tried in self.found.around.values()) > SLOW * len(self.found.around)
        return self.processes if slow and self.found.around else 1

    def beyond(self, x: float) -> bool:
        return is_beyond(self.found, x)

    def gap(self) -> tuple[float, float] | None:
        """The first two neighbours of which the lower will do and the higher will not."""
        return next((pair for pair in pairwise(self.found.curve) if not self.beyond(pair[0]) and self.beyond(pair[1])), None)  # fmt: skip


def spread(rounded: Callable[[float], float], start: float, bound: float) -> list[float]:
    """Loads in equal ratios around a bound, from coarse to fine; one of them is replaced by `start` if that is among them."""
    low, high = (part * bound for part in PARTS)
    steps = [low * (high / low) ** (k / (LOADS - 1)) for k in range(LOADS)]
    nearest = min(steps, key=lambda x: abs(math.log(x / start)))
    if low < start < high:
        steps.remove(nearest)
    order: list[float] = []
    for stride in (len(steps) - 1, 4, 2, 1):
        order += [x for x in steps[::stride] if x not in order]
    return list(dict.fromkeys(rounded(x) for x in order))


def bound(load: Load, requests: int = REQUESTS) -> float:
    """The load that a flood says no engine exceeds: what ends a second under far too much of it, as a load.

    That of operational analysis (Denning and Buzen 1978): open arrivals cannot come faster than requests end when there are always
    some; of a closed loop the asymptotes of throughput cross where clients are as many as it takes one's time to fill that.
    """
    scenario = load.scenario
    long = scenario if has_its_length(scenario) else with_requests(scenario, requests)
    at = load_of(long, load.path)
    most = _ends(at.at(_rounded(at, max(FLOOD * at.start, 256.0 if at.integer else 0.0))))
    if isinstance(scenario.workload.arrivals, ClosedLoop):
        alone = _ends(at.at(1))
        return most / alone if alone else load.start
    sent = _sent(at.at(at.start))
    return load.start * most / sent if most and sent else load.start


def _sent(scenario: Scenario) -> float:
    """Requests that are sent a second, those that follow others among them; 0 where all come at once."""
    workload = scenarios.generate(scenario)
    openings = workload.arrival_ns[workload.follows < 0]
    seconds = float(openings.max() - openings.min()) / 1e9 if len(openings) > 1 else 0.0
    return len(workload.arrival_ns) / seconds if seconds else 0.0


def _ends(scenario: Scenario) -> float:
    """Requests that end a second."""
    summary, _ = simulated_figures(scenario)
    return float(summary.get("request_throughput") or 0.0)


def _rounded(load: Load, value: float) -> float:
    return float(round(value)) if load.integer else value


def _talks(scenario: Scenario) -> bool:
    """Whether requests come in conversations."""
    parts = (scenario.workload.mix or {"": scenario.workload}).values()
    return any(getattr(part.prompts, "kind", "") in ("sessions", "agents") for part in parts)


def _cut(scenario: Scenario, requests: int | None) -> Scenario:
    """A trace's first requests."""
    trace = scenario.workload.trace
    most = requests or LONGER * REQUESTS
    if trace is None or (trace.limit is not None and trace.limit <= most):
        return scenario
    return scenarios.changed(scenario, [Override("workload.trace.limit", most, "outline")])
