"""What was found of a scenario: whether it keeps its objectives, by how much, and what limits it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scenarios.objectives import Objective, parse_objective
from studies.capacity import pooled
from studies.capacity.evidence import CURVES, QUANTILES, Evidence
from studies.capacity.look import LOST, Look
from studies.capacity.trial import Trial
from studies.statistics import intervals
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.sweeps.cells import Row

BACKLOG, TURNED_AWAY = "backlog", "turned away"
"""What a load can be short of beside objectives."""


@dataclass(frozen=True)
class Binding:
    """What limits: the objective nearest to its limit, or furthest beyond it, `backlog` or `turned away`; and the resource that most
    runs are short of (`studies.capacity.resources`); sentence: what binds the first of those."""

    objective: str
    resource: str
    sentence: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"objective": self.objective, "resource": self.resource}


@dataclass(frozen=True)
class Attainment:
    """What was found of one scenario.

    met: whether every objective holds and the load is sustained; None where it stayed open, and `why` then says what.
    sustained: whether the backlog does not grow and nobody is turned away; None where that stayed open, or where a run is one pattern
    to be judged as a whole. intervals: by objective, as text; in exported units (milliseconds for latencies). confidence: of the
    whole decision; those of the intervals are higher. alike: the seed changes nothing, so that there is one run and no interval.
    broken: the objectives that do not hold, `backlog` and `turned away` among them.
    rows: figures of each run, in order of seeds; runs: how many there were in all, those that were too short among them;
    cpu_seconds: that they took. percentiles: of every latency, by key (`p95_ttft_ms`), of the steady part of all runs together; those
    that they do not carry are left out.
    """

    met: bool | None
    sustained: bool | None
    intervals: dict[str, Interval]
    growth: Interval
    lost: Interval
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    requests: int
    binding: Binding
    confidence: float = CONFIDENCE
    why: str = ""
    broken: tuple[str, ...] = ()
    alike: bool = False
    runs: int = 0
    cpu_seconds: float = field(default=0.0, compare=False)
    percentiles: dict[str, Interval] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """How many times its limit the figure of the worst objective is: 1 at the limit, infinite where there is no figure."""
        return max(beyond(span, parse_objective(name)) for name, span in self.intervals.items())

    def interval(self, key: str) -> Interval:
        """Mean over seeds of a figure of the rows, with Student's t interval at the confidence asked for."""
        return intervals.mean([row.get(key) for row in self.rows], self.confidence)

    def to_dict(self) -> dict[str, Any]:
        return {
            "met": self.met,
            "sustained": self.sustained,
            "why": self.why,
            "objectives": {name: found.to_dict() for name, found in self.intervals.items()},
            "growth": self.growth.to_dict(),
            "turned_away": self.lost.to_dict(),
            "binding": self.binding.to_dict(),
            "seeds": list(self.seeds),
            "requests": self.requests,
            "runs": self.runs,
        }


def attained(trial: Trial, look: Look, confidence: float, *, met: bool | None) -> Attainment:
    """What a last look at a trial makes of it. confidence: of the whole decision."""
    steady = look.growth.estimate is not None
    open_ = look.grows is None or look.loses is None
    sustained = False if look.grows or look.loses else None if open_ or not steady else True
    rows = tuple(one.row for one in trial.found)
    return Attainment(
        met=met,
        sustained=sustained,
        intervals={str(o): span for o, span in zip(trial.objectives, look.intervals, strict=True)},
        growth=look.growth,
        lost=look.lost,
        rows=rows,
        seeds=tuple(row_seed for row_seed in range(trial.scenario.seed, trial.scenario.seed + len(rows))),
        requests=trial.found[0].requests,
        binding=_binding(trial, look),
        confidence=confidence,
        why=_why(trial, look, met),
        broken=_broken(trial, look),
        alike=trial.alike,
        runs=trial.runs,
        cpu_seconds=trial.cpu_seconds,
        percentiles=_percentiles(trial.found, confidence),
    )


def _percentiles(found: Sequence[Evidence], confidence: float) -> dict[str, Interval]:
    spans = {}
    for metric in CURVES:
        for p in QUANTILES:
            if sum(one.tails[metric, p] for one in found) >= 1:
                spans[f"p{p:g}_{metric}_ms"] = pooled.percentile(
                    [one.latencies[metric] for one in found], p, confidence
                )
    return spans


def _broken(trial: Trial, look: Look) -> tuple[str, ...]:
    names = [str(o) for o, verdict in zip(trial.objectives, look.verdicts, strict=True) if verdict is False]
    return (*names, *([BACKLOG] if look.grows else []), *([TURNED_AWAY] if look.loses else []))


def _binding(trial: Trial, look: Look) -> Binding:
    resource, _ = Counter(str(one.row["binding.resource"]) for one in trial.found).most_common(1)[0]
    said = next(one.sentence for one in trial.found if one.row["binding.resource"] == resource)
    if look.loses:
        return Binding(TURNED_AWAY, resource, said)
    shares = {str(o): beyond(span, o) for o, span in zip(trial.objectives, look.intervals, strict=True)}
    worst = max(shares, key=lambda name: shares[name])
    return Binding(BACKLOG if look.grows and shares[worst] <= 1 else worst, resource, said)


def beyond(span: Interval, objective: Objective) -> float:
    """How many times its limit a figure is, or its limit the figure where that must be high; above 1 it is broken."""
    if span.estimate is None:
        return float("inf")
    value = span.estimate if objective.statistic is None else span.estimate / 1e3
    over, under = (value, objective.limit) if objective.comparison == "<=" else (objective.limit, value)
    return over / under if under > 0 else float("inf") if over > 0 else 1.0


def _why(trial: Trial, look: Look, met: bool | None) -> str:
    """Why a load is not met, or why that stayed open."""
    if met:
        return ""
    said = []
    for objective, span, verdict, carried in zip(
        trial.objectives, look.intervals, look.verdicts, look.carried, strict=True
    ):
        if verdict is False:
            said.append(f"{objective} is broken")
        elif met is None and span.estimate is None:
            said.append(f"{objective}: {span.refused or 'no run has this figure'}")
        elif met is None and carried < 1:
            said.append(
                f"{objective}: a run has {carried:.0%} of the independent samples that it needs, and cannot be longer"
            )
        elif met is None and verdict is None:
            said.append(f"{objective} is too close to its limit to tell with {len(trial.found)} seeds")
    if look.grows:
        said.append(f"the backlog grows by {look.growth.estimate or 0:.1%} of what arrives")
    elif met is None and look.grows is None:
        said.append("whether the backlog grows is open")
    if look.loses:
        said.append(f"{look.lost.estimate or 0:.1%} of the requests are turned away or given up")
    elif met is None and look.loses is None:
        said.append(f"whether more than {LOST:.0%} of the requests are turned away is open")
    if met is None and not said:
        said.append("the runs are too short: much of each is filling and draining")
    return "; ".join(said)
