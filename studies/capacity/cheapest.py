"""The configuration of a space that meets its objectives for the least money."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scenarios.errors import InputError, unknown
from scenarios.objectives import Objective
from serving.economics import KEYS
from studies.capacity.judging import Judge
from studies.capacity.space import Candidate, Space, turned_away
from studies.statistics import intervals
from studies.statistics.differences import Difference, difference
from studies.statistics.intervals import Interval

if TYPE_CHECKING:
    from studies.capacity.attainment import Attainment
    from studies.progress import Progress

PER_HOUR = "usd_per_hour"
BY = (PER_HOUR, *(key for key in KEYS if key.startswith("usd_")))
"""What can be least: the price of an hour, or an exported figure of the bill."""
LARGE = 500
"""Configurations above which all are tried only where that is asked for."""
FIRST = 6
"""Seeds of a configuration's first look; those that it does not decide get more only while they may still be the best."""
FRESH = 1_000_000
"""What is added to the seed to see the best confirmed: it was chosen among many, and its own seeds may have been kind to it."""
KEPT = 2
"""How many of the best are wanted: the best, and the runner-up."""


@dataclass
class Judged:
    """What is known of a configuration.

    outcome: `met`, `not met`, `not decided`, `not confirmed` (met with its own seeds, not with fresh ones), `refused` (it cannot be,
    or cannot be run), or `dearer` (not run: an hour costs more than that of the runner-up). costs: what is to be least, of every seed.
    """

    candidate: Candidate
    outcome: str
    attainment: Attainment | None = None
    costs: dict[int, float | None] = field(default_factory=dict)
    why: str = ""
    confirmed: Attainment | None = None

    @property
    def usd(self) -> float:
        """Mean of what is to be least; infinite where there is none."""
        estimate = intervals.mean(list(self.costs.values())).estimate
        return math.inf if estimate is None else float(f"{estimate:.12g}")

    @property
    def headroom(self) -> float:
        """The worst objective's figure as a share of its limit (of an objective that asks for more: the inverse)."""
        return math.inf if self.attainment is None else self.attainment.worst

    def cost(self, confidence: float = intervals.CONFIDENCE) -> Interval:
        """Mean over seeds of what is to be least."""
        return intervals.mean(list(self.costs.values()), confidence)

    def interval(self, key: str, confidence: float = intervals.CONFIDENCE) -> Interval | None:
        """Mean over seeds of an objective's figure (as text) or of an exported one; None of what was not run."""
        if self.attainment is None:
            return None
        objective = self.attainment.intervals.get(key)
        if objective is not None:
            return objective
        return intervals.mean([row.get(key) for row in self.attainment.rows], confidence)

    def figure(self, key: str) -> float | None:
        """The estimate of `interval`; None without."""
        found = self.interval(key)
        return None if found is None else found.estimate

    @property
    def rank(self) -> tuple[float, float, int]:
        """Cheapest first; of the equally cheap, the one that stays farthest from its limits."""
        return (self.usd, self.headroom, self.candidate.point.index)


@dataclass
class Cheapest:
    """What a search found. known: every configuration that was looked at, by its place in the space."""

    space: Space
    objectives: tuple[Objective, ...]
    confidence: float
    by: str
    known: dict[int, Judged] = field(default_factory=dict)
    method: str = "exhaustive"
    trials: int | None = None

    @property
    def judged(self) -> list[Judged]:
        """All that were looked at, in the space's order."""
        return [self.known[index] for index in sorted(self.known)]

    @property
    def met(self) -> list[Judged]:
        """Those that meet every objective, the best first."""
        return sorted((j for j in self.known.values() if j.outcome == "met"), key=lambda j: j.rank)

    @property
    def best(self) -> Judged | None:
        found = self.met
        return found[0] if found else None

    @property
    def runner_up(self) -> Judged | None:
        found = self.met
        return found[1] if len(found) > 1 else None

    def of(self, outcome: str) -> list[Judged]:
        """Those of an outcome."""
        return [j for j in self.judged if j.outcome == outcome]

    @property
    def runs(self) -> int:
        """Simulations that it took."""
        return sum(a.runs for j in self.judged for a in (j.attainment, j.confirmed) if a is not None)

    def dearer(self) -> Difference | None:
        """What the runner-up costs more, over the seeds that both had; None without a runner-up."""
        best, other = self.best, self.runner_up
        if best is None or other is None:
            return None
        first, second = best.costs, other.costs
        shared = [seed for seed in first if seed in second]
        return difference(
            {seed: first[seed] for seed in shared},
            {seed: second[seed] for seed in shared},
            better="lower",
            confidence=self.confidence,
        )


class Search:
    """Judges configurations one by one, whatever chooses them, and gives up on those that cannot be the best."""

    def __init__(
        self,
        found: Cheapest,
        judge: Judge,
        *,
        every: bool = False,
        progress: Progress | None = None,
        partial: Callable[[Cheapest], None] | None = None,
    ) -> None:
        self.found, self.judge, self.every, self.progress, self.partial = found, judge, every, progress, partial
        self.known = found.known
        self.turned_away, _ = turned_away(found.space.scenario)

    def look(self, candidate: Candidate) -> Judged:
        """The first look at a configuration; what was looked at is not run again."""
        index = candidate.point.index
        if index not in self.known:
            self.known[index] = self._judged(candidate, FIRST)
            if self.partial is not None and self.known[index].attainment is not None:
                self.partial(self.found)
        return self.known[index]

    @property
    def run(self) -> int:
        """Configurations that were run."""
        return sum(judged.attainment is not None for judged in self.known.values())

    @property
    def bound(self) -> float:
        """What an hour may cost of a configuration that is still of interest."""
        best = self.found.met[:KEPT]
        return best[-1].usd if len(best) == KEPT and self.found.by == PER_HOUR and not self.every else math.inf

    def settle(self) -> None:
        """More seeds for what the first look did not decide and may still be the best; then fresh ones for the best."""
        tried: set[int] = set()
        while True:
            open_ = [
                j
                for j in self.found.judged
                if j.outcome == "not decided" and j.candidate.point.index not in tried and self._may_win(j)
            ]
            if open_:
                chosen = min(open_, key=lambda j: j.rank)
                tried.add(chosen.candidate.point.index)
                self.known[chosen.candidate.point.index] = self._judged(chosen.candidate, None, anyway=True)
                continue
            best = self.found.best
            if best is None or best.confirmed is not None or (best.attainment is not None and best.attainment.alike):
                return
            self._confirm(best)

    def _may_win(self, judged: Judged) -> bool:
        best = self.found.met[:KEPT]
        return len(best) < KEPT or judged.rank < best[-1].rank

    def _confirm(self, best: Judged) -> None:
        scenario = best.candidate.scenario
        assert scenario is not None
        self._tell(f"confirming {best.candidate.name}")
        best.confirmed = self.judge(scenario.model_copy(update={"seed": scenario.seed + FRESH}))
        if best.confirmed.met is not True:
            best.outcome = "not confirmed"

    def _judged(self, candidate: Candidate, most: int | None, anyway: bool = False) -> Judged:
        if candidate.scenario is None or candidate.usd_per_hour is None:
            return Judged(candidate, "refused", why=candidate.refused)
        if not anyway and candidate.usd_per_hour > self.bound:
            return Judged(candidate, "dearer")
        self._tell(candidate.name)
        try:
            away, of = turned_away(candidate.scenario)
            if away > self.turned_away:
                more = f", more than the {self.turned_away:,} of the scenario as it is" if self.turned_away else ""
                why = f"{away:,} of {of:,} requests are too large for its empty engine{more}"
                return Judged(candidate, "refused", why=why)
            found = self.judge(candidate.scenario, most)
        except InputError as error:
            return Judged(candidate, "refused", why=str(error))
        outcome = {True: "met", False: "not met", None: "not decided"}[found.met]
        costs = dict(zip(found.seeds, (row.get(self.found.by) for row in found.rows), strict=True))
        return Judged(candidate, outcome, found, costs)

    def _tell(self, what: str) -> None:
        if self.progress is not None:
            done, all_ = (
                (self.run, self.found.trials) if self.found.trials else (len(self.known), self.found.space.size)
            )
            self.progress(what, min(0.99, done / all_))


def cheapest(
    space: Space,
    judge: Judge,
    *,
    by: str = PER_HOUR,
    every: bool = False,
    trials: int | None = None,
    progress: Progress | None = None,
    partial: Callable[[Cheapest], None] | None = None,
) -> Cheapest:
    """The configuration that meets every objective, at its scenario's load, for the least money.

    judge: decides one configuration. by: one of `BY`. every: also runs what an hour's price already rules out.
    trials: instead of trying all, let Optuna choose so many that are run. partial: gets what is known after every one.

    Raises:
        InputError: no such figure; nothing in the space can be; a space too large to try.
    """
    if by not in BY:
        raise InputError(f"--by: {unknown('figure', by, BY)}")
    found = Cheapest(space, judge.objectives, judge.confidence, by, trials=trials)
    search = Search(found, judge, every=every, progress=progress, partial=partial)
    if trials is not None:
        from studies.capacity import optuna_search

        found.method = "optuna"
        optuna_search.choose(space, search, trials)
    elif space.size > LARGE and not every:
        raise InputError(
            f"{space.source}: {space.size:,} configurations, more than {LARGE}; give --trials N to search them with Optuna, or --all"
        )
    else:
        for candidate in sorted(space.candidates(), key=_by_price):
            search.look(candidate)
    _check_possible(found)
    search.settle()
    return found


def _by_price(candidate: Candidate) -> tuple[float, int]:
    return (candidate.usd_per_hour or 0.0, candidate.point.index)


def _check_possible(found: Cheapest) -> None:
    refused = found.of("refused")
    if refused and len(refused) == len(found.judged):
        raise InputError(f"none of {len(refused)} configurations can be; the first: {refused[0].why}")


def pareto(judged: Iterable[Judged], key: str) -> list[Judged]:
    """Those that no other beats in cost and in a latency at once, the cheapest first. key: an exported figure, less is better."""
    points = [(j.usd, value, j) for j in judged if (value := j.figure(key)) is not None and math.isfinite(j.usd)]
    found, least = [], math.inf
    for _, value, j in sorted(points, key=lambda p: (p[0], p[1], p[2].candidate.point.index)):
        if value < least:
            found.append(j)
            least = value
    return found
