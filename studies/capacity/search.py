"""The highest load under which objectives hold: bracketed by doubling, then halved on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError
from scenarios.objectives import Objective
from scenarios.schema import Scenario
from studies.capacity import objectives as asked_for
from studies.capacity.attain import FIRST, MOST, attain, first_length
from studies.capacity.attainment import Attainment
from studies.capacity.load import Load, load_of
from studies.capacity.told import Told
from studies.run import loaded
from studies.statistics.intervals import CONFIDENCE

if TYPE_CHECKING:
    from studies.progress import Progress

RESOLUTION = 0.02
"""The ends of the interval differ by so much at most, where the runs can tell."""
FARTHEST = 20
"""Doublings or halvings after which no end of the interval is looked for."""
THE_SAME = 0.005
"""Relative difference below which a figure counts as unchanged."""
LARGEST = 100_000
"""Requests of a run (a thousand clients need twenty thousand) from which no larger load is tried."""
UNCHANGED = 2
"""Doublings without a change after which more would change nothing."""


@dataclass
class Capacity:
    """The highest load, and how it was found.

    load: the highest that was found to meet every objective; None where there is none, and `why` then says so. interval: that load and
    the lowest above it that does not meet them, None where it was not found (`why`). tried: by load.
    around: loads that were run for the curve only (`look_around`), each with few seeds.
    """

    over: Load
    objectives: tuple[Objective, ...]
    confidence: float
    resolution: float
    tried: dict[float, Attainment] = field(default_factory=dict)
    why: str = ""
    around: dict[float, Attainment] = field(default_factory=dict)

    @property
    def broken(self) -> float | None:
        """The lowest load that is too high."""
        return min((x for x, found in self.tried.items() if self.direction(x) == "down"), default=None)

    @property
    def enough(self) -> float | None:
        """The highest load below `broken` that is not too high."""
        end = self.broken
        return max((x for x in self.tried if self.direction(x) == "up" and (end is None or x < end)), default=None)

    @property
    def load(self) -> float | None:
        x = self.enough
        return x if x is not None and self.tried[x].met else None

    @property
    def interval(self) -> tuple[float | None, float | None]:
        return self.load, self.broken

    @property
    def open(self) -> list[float]:
        """Loads between both ends of which it stayed open whether they meet the objectives."""
        low, high = self.enough or 0.0, self.broken or math.inf
        return sorted(x for x in self.tried if low < x < high)

    @property
    def beyond(self) -> list[float]:
        """Loads above the interval that meet the objectives nevertheless: more load is not always worse then."""
        end = self.broken
        return sorted(x for x, found in self.tried.items() if end is not None and x > end and found.met)

    def direction(self, x: float) -> str:
        """Where the answer lies from a load that was tried: `up`, `down`, or `open`.

        More load breaks objectives, but for those on throughput (and latencies that must be long), which too little load breaks: these
        point up while their figure rises with the load.
        """
        found = self.tried[x]
        if found.met is not False:
            return "up" if found.met else "open"
        by_text = {str(o): o for o in self.objectives}
        for name in found.broken:
            objective = by_text.get(name)
            if objective is None or not wants_load(objective) or not self._rises(name, x):
                return "down"
        return "up"

    def _rises(self, name: str, x: float) -> bool:
        """Whether a figure is higher than under the next lower load that was tried."""
        below = max((other for other in self.tried if other < x), default=None)
        if below is None:
            return True
        here, there = (self.tried[y].intervals[name].estimate for y in (x, below))
        return here is not None and (there is None or here > there)

    def rounded(self, x: float) -> float:
        """Four digits, or a whole number: what can be typed in again."""
        return float(max(1, round(x))) if self.over.integer else float(f"{x:.4g}")

    @property
    def curve(self) -> dict[float, Attainment]:
        """All loads that were run, from low to high."""
        return dict(sorted((self.tried | self.around).items()))

    @property
    def knee(self) -> float | None:
        """The load with most throughput for its latency: where their ratio, the power of a queue (Kleinrock 1979), is highest."""
        power = {
            x: done / taken
            for x, found in self.curve.items()
            if (done := found.interval("request_throughput").estimate) is not None
            and (taken := found.interval("mean_e2el_ms").estimate)
        }
        return max(power, key=lambda x: power[x], default=None)

    @property
    def binding(self) -> dict[str, str] | None:
        """Of the lowest load that is too high: what limits."""
        end = self.broken
        return None if end is None else self.tried[end].binding.to_dict()

    def to_dict(self) -> dict[str, Any]:
        return {
            "load": self.load,
            "interval": list(self.interval),
            "binding": self.binding,
            "why": self.why,
            "over": self.over.path,
            "unit": self.over.unit,
            "scenario": self.over.scenario.name,
            "objectives": [str(o) for o in self.objectives],
            "confidence": self.confidence,
            "resolution": self.resolution,
            "open": self.open,
            "beyond": self.beyond,
            "seeds": max((len(found.seeds) for found in self.tried.values()), default=0),
            "runs": sum(found.runs for found in self.tried.values()),
            "tried": [{"load": x} | self.tried[x].to_dict() for x in sorted(self.tried)],
        }


def wants_load(objective: Objective) -> bool:
    """Whether it is kept by more load rather than by less: a throughput, or a latency that is to be long."""
    return objective.comparison == ">=" and objective.metric != "good_request_fraction"


def highest_load(
    scenario: Scenario | str | Path,
    objectives: Sequence[Objective] | str | None = None,
    over: str | None = None,
    *,
    confidence: float = CONFIDENCE,
    resolution: float = RESOLUTION,
    requests: int | None = None,
    most: int = MOST,
    processes: int | None = None,
    progress: Progress | None = None,
    partial: Callable[[Capacity], None] | None = None,
) -> Capacity:
    """The highest load at which every objective holds and the load is sustained (`studies.capacity.attain`).

    Args:
        objectives: as text, `ttft_p99<=500ms, tpot_p95<=50ms`; the scenario's own by default. over: which number of the workload is the
            load; its rates, clients or the speed of its trace by default. requests, most, processes: as `attain` takes them.
        partial: gets what is known after every load.

    Raises:
        InputError: the scenario, an objective or the load is wrong.
    """
    load = load_of(loaded(scenario), over)
    if isinstance(objectives, str):
        chosen = asked_for.parse(objectives)
    else:
        chosen = asked_for.of_scenario(load.scenario) if objectives is None else tuple(objectives)
    asked_for.check_promises(chosen, load.scenario)
    if not resolution > 0:
        raise InputError(f"--resolution: found {resolution:g}, but it must be above 0, such as 2%")

    told = Told(progress)

    def judge(asked: Scenario) -> Attainment:
        return attain(asked, chosen, confidence, most=most, processes=processes, requests=requests, tell=told.detail)

    found = Capacity(load, chosen, confidence, resolution)
    _Search(found, judge, told, partial).run()
    return found


PARTS = (0.2, 0.4, 0.6, 0.75, 0.88, 0.95, 1.05, 1.15, 1.3)
"""Loads of a curve, as parts of the answer."""
APART = 1.04
"""Ratio of two loads below which a curve does not need both."""


def look_around(
    found: Capacity, *, requests: int | None = None, processes: int | None = None, progress: Progress | None = None
) -> None:
    """Runs more loads with few seeds each, for curves of latency and throughput on both sides of the answer."""
    middle = found.load or found.broken
    if middle is None:
        return
    longest = max(each.requests for each in found.tried.values())
    for i, part in enumerate(PARTS):
        x = found.rounded(part * middle)
        if any(max(x, y) < APART * min(x, y) for y in (*found.tried, *found.around)):
            continue
        if progress is not None:
            progress(f"curve: {found.over.said(x)}", i / len(PARTS))
        asked = found.over.at(x)
        length = requests if requests is not None else min(longest, 2 * first_length(asked, found.objectives))
        found.around[x] = attain(
            asked, found.objectives, found.confidence, most=FIRST, processes=processes, requests=length, longest=length
        )


class _Search:
    def __init__(
        self,
        found: Capacity,
        judge: Callable[[Scenario], Attainment],
        progress: Progress,
        partial: Callable[[Capacity], None] | None,
    ) -> None:
        self.found, self.judge, self.progress, self.partial = found, judge, progress, partial

    def run(self) -> None:
        found = self.found
        start = self.found.rounded(found.over.start)
        self.look(start)
        if not self.above(start) or not self.below(start):
            return
        while (x := self.between()) is not None:
            self.look(x)
        if found.load is None:
            found.why = self.contradiction()

    def look(self, x: float) -> Attainment:
        found = self.found
        if x not in found.tried:
            self.progress(f"{found.over.said(x)}", 1 - 0.9 ** len(found.tried))
            found.tried[x] = self.judge(found.over.at(x))
            if self.partial is not None:
                self.partial(found)
        return found.tried[x]

    def above(self, start: float) -> bool:
        """Whether there is a load that is too high; looks for one by doubling."""
        found, x = self.found, start
        for _ in range(FARTHEST):
            if found.broken is not None:
                return True
            if self.nothing_changes(1) or found.tried[x].requests > LARGEST:
                break
            x = self.found.rounded(2 * x)
            self.look(x)
        if found.broken is not None:
            return True
        top = max(found.tried)
        if found.load is None:
            found.why = f"never met: up to {found.over.said(top)} {found.tried[top].why}"
        else:
            found.why = (
                f"never broken: the objectives hold up to {found.over.said(top)}, from where on more changes nothing"
            )
        return False

    def below(self, start: float) -> bool:
        """Whether there is a load that is not too high; looks for one by halving."""
        found, x = self.found, start
        for _ in range(FARTHEST):
            if found.enough is not None:
                return True
            half = self.found.rounded(x / 2)
            if half == x or self.nothing_changes(-1):
                break
            x = half
            self.look(x)
        if found.enough is not None:
            return True
        least = min(found.tried)
        found.why = f"never met: even at {found.over.said(least)} {found.tried[least].why}"
        return False

    def nothing_changes(self, side: int) -> bool:
        """Whether the last doublings (side 1) or halvings (-1) left every figure as it was."""
        loads = sorted(self.found.tried)[::-side][: UNCHANGED + 1]
        if len(loads) <= UNCHANGED:
            return False
        spans = [self.found.tried[x].intervals for x in loads]
        return all(_alike(spans[0][name].estimate, other[name].estimate) for other in spans[1:] for name in spans[0])

    def between(self) -> float | None:
        """The next load to look at; None where the interval is narrow enough, or cannot be narrower."""
        found = self.found
        low, high = found.enough, found.broken
        assert low is not None
        assert high is not None
        unknown = found.open
        for a, b in ((low, unknown[0]), (unknown[-1], high)) if unknown else ((low, high),):
            middle = self.found.rounded(math.sqrt(a * b))
            if b > a * (1 + found.resolution) and a < middle < b:
                return middle
        return None

    def contradiction(self) -> str:
        """Why no load between the one that is too low and the one that is too high meets all."""
        found = self.found
        low, high = found.enough, found.broken
        assert low is not None
        assert high is not None
        return (
            f"never met: the objectives contradict one another here. At {found.over.said(low)} {found.tried[low].why}; "
            f"at {found.over.said(high)} {found.tried[high].why}"
        )


def _alike(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= THE_SAME * max(abs(a), abs(b))
