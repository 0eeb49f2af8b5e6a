"""Whether a scenario keeps its objectives, at a stated confidence: replications that grow until the answer is clear.

Every objective is judged by its figure in the steady part of all runs, with an interval over seeds: of percentiles that of all their
requests together (`studies.capacity.pooled`), of everything else the mean, with Student's t; where runs are one course of events, such
as a day, the mean of each run's own. While an interval holds the limit, there are twice as many seeds; while runs are too short to say
anything (a percentile that they do not carry, a backlog of which it is open whether it grows, much filling and draining), they become
twice as long.

Looking several times would cost confidence: look k spends half of what look k - 1 did, (1 - confidence) / 2^k, so that all looks
together, however many there are, err with a chance of at most 1 - confidence. That is counted for each objective, in both directions
together; that all hold is claimed only where each does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scenarios.arrivals import ClosedLoop
from scenarios.errors import InputError
from scenarios.objectives import LATENCIES, Objective, parse_objective
from scenarios.schema import Scenario
from scenarios.workload_spec import WorkloadSpec
from serving.samples import samples_needed
from studies import workers
from studies.capacity import objectives as asked_for
from studies.capacity import pooled
from studies.capacity.evidence import CURVES, QUANTILES, Evidence, Floats, gather, has_its_length, percentile_of
from studies.statistics import intervals
from studies.statistics.batch_means import batch_means
from studies.statistics.intervals import CONFIDENCE, FEWEST, Interval
from studies.statistics.quantiles import quantile
from studies.sweeps.cells import Row

FIRST = 6
"""Seeds of the first look."""
MOST = 24
"""Seeds after which an open question stays open."""
SHORTEST = 3_000
"""Requests of a run at first, or ten times what the highest percentile needs to be carried."""
HOPELESS = 0.5
"""Part of the interval that the most seeds should have, within which a figure is too close to its limit for more of them."""
FAR = 0.5
"""Part of its limit below which a latency's interval is far from it; of others a longer look is taken before they count as met."""
RISES = 1.1
"""Times what it was in shorter runs, from which a latency depends on their length."""
PRECISE = 0.25
"""Part of a latency near its limit that half of its interval may be: a wider one is that of runs too few or too short to hold what is
rare, and wrong more often than it says."""
RISING = (
    "all hold so far, but a latency near its limit still depends on the length of the runs, and they cannot be longer"
)
LENGTHENINGS = 5
"""How often runs may double."""
PILES_UP = 0.02
"""Share of what arrives that may pile up where a load still counts as sustained: what cannot be told from noise costs runs, and so
many requests too many are within the resolution of a search."""
LOST = 0.01
"""Share of requests that may be turned away or given up."""
FILLING = 0.05
"""Share of a run's requests that are in the system at once from which the run is too short: filling and draining weigh in."""
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


def attain(
    scenario: Scenario,
    objectives: Sequence[Objective] | None = None,
    confidence: float = CONFIDENCE,
    *,
    most: int = MOST,
    processes: int | None = None,
    requests: int | None = None,
    longest: int | None = None,
) -> Attainment:
    """Simulates a scenario under as many seeds as it takes to tell whether it keeps its objectives.

    Args:
        objectives: all must hold; the scenario's own by default.
        most: seeds after which an open question stays open, at least 5. processes: side by side; all processors by default. The
            answer does not depend on them.
        requests: of a run at first, instead of a length that suits; longest: to which runs may grow. Scenarios that are one
            pattern (traces, stages, arrivals with a duration) keep their length.

    Raises:
        InputError: no objective, two that contradict one another, or one that counts good requests where nothing is promised.
        ValueError: fewer than 5 seeds, or a confidence that is not between 0 and 1.
    """
    chosen = (
        asked_for.of_scenario(scenario) if objectives is None else asked_for.checked(tuple(objectives), "objectives")
    )
    if not chosen:
        raise InputError(f"objectives: found none, but some are needed, such as {asked_for.EXAMPLE!r}")
    asked_for.check_promises(chosen, scenario, "objectives")
    intervals.check_confidence(confidence)
    if most < FEWEST:
        raise ValueError(f"most: found {most}, but an interval needs {FEWEST} seeds")
    length = None if has_its_length(scenario) else requests or first_length(scenario, chosen)
    trial = _Trial(scenario, chosen, length, processes)
    limit = longest if longest is not None else (length or 0) << LENGTHENINGS
    return _decided(trial, confidence, most, limit)


def first_length(scenario: Scenario, objectives: Sequence[Objective] = ()) -> int:
    """Requests of a run that is long enough for the percentiles of these objectives, and to fill its clients."""
    needed = [SHORTEST, *(10 * samples_needed(o.percentile) for o in objectives if 95 <= (o.percentile or 0) < 100)]
    arrivals = scenario.workload.arrivals
    if isinstance(arrivals, ClosedLoop):
        needed.append(int(arrivals.concurrency / FILLING))
    return max(needed)


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


@dataclass
class _Trial:
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


def _outcome(found: Evidence) -> tuple[Any, ...]:
    """What of a run would differ if anything that was drawn did."""
    keys = ("total_input_tokens", "total_output_tokens", "duration", "mean_e2el_ms", "mean_ttft_ms")
    return (found.values, found.growth, *(found.row.get(key) for key in keys))


@dataclass(frozen=True)
class _Look:
    """What one look at the runs says: every objective's interval and verdict (True, False, or None for open)."""

    intervals: list[Interval]
    verdicts: list[bool | None]
    carried: list[float]
    growth: Interval
    grows: bool | None
    lost: Interval
    loses: bool | None
    filling: float

    @property
    def thin(self) -> bool:
        """Whether the runs do not carry a figure."""
        return min(self.carried) < 1

    @property
    def endless(self) -> bool:
        """Whether an interval reaches beyond the largest value: more seeds help, and where there are no more, longer runs."""
        return any(span.low is not None and span.high is None for span in self.intervals)

    @property
    def times(self) -> int:
        """How many times as long runs should carry every figure; a power of 2."""
        return 1 << max(1, math.ceil(-math.log2(min(max(min(self.carried), 1e-3), 1.0))))


def _decided(trial: _Trial, confidence: float, most: int, longest: int) -> Attainment:
    seeds, looks = min(FIRST, most), 0
    grew: float | None = None  # how much piled up in shorter runs
    shorter: list[Interval] | None = None  # what shorter runs said of the objectives
    if trial.length is None:
        trial.grow(2)  # where the seed changes nothing, more would be the same again
    while True:
        trial.grow(seeds)
        looks += 1
        look = _look(trial, 1 - (1 - confidence) / 2**looks)
        if False in look.verdicts or look.loses:
            return _attainment(trial, look, confidence, met=False)
        can_lengthen = trial.length is not None and 2 * trial.length <= longest
        if look.grows and (not can_lengthen or (grew is not None and (look.growth.estimate or 0.0) > 0.7 * grew)):
            return _attainment(trial, look, confidence, met=False)
        too_short = look.thin or look.grows is not False or (trial.length is not None and look.filling > FILLING)
        if not too_short and look.loses is False and all(look.verdicts):
            if not _may_rise(trial, look, shorter):
                return _attainment(trial, look, confidence, met=True)
            if shorter is None and not can_lengthen:
                return _attainment(trial, look, confidence, met=True)
            if not can_lengthen:
                return replace(_attainment(trial, look, confidence, met=None), why=RISING)
            shorter = look.intervals
            trial.lengthen(2)
        elif too_short and can_lengthen:
            shorter = look.intervals
            grew = look.growth.estimate if look.grows is not False else None
            trial.lengthen(min(look.times, longest // (trial.length or 1)))
        elif not trial.alike and seeds < most and not _hopeless(trial, look, most):
            seeds = min(2 * seeds, most)
        elif look.endless and can_lengthen:
            shorter = look.intervals
            grew = look.growth.estimate if look.grows is not False else None
            trial.lengthen(2)
        else:
            return _attainment(trial, look, confidence, met=None)


def _may_rise(trial: _Trial, look: _Look, shorter: list[Interval] | None) -> bool:
    """Whether longer runs might say worse: a latency that is not far from its limit, and is not as it was in shorter runs, or is known roughly only.

    Long busy times are rare, and few or short runs have none of them: then figures are too low and agree with one another."""
    if trial.alike or trial.length is None:
        return False
    for k, objective in enumerate(trial.objectives):
        now = look.intervals[k]
        if objective.statistic is None or objective.comparison == ">=" or now.estimate is None or now.high is None:
            continue
        if now.high <= FAR * objective.limit * 1e3:
            continue
        before = None if shorter is None else shorter[k].estimate
        if before is None or now.estimate > RISES * before or (now.half_width or 0.0) > PRECISE * now.estimate:
            return True
    return False


def _hopeless(trial: _Trial, look: _Look, most: int) -> bool:
    """Whether an objective is so close to its limit that even `most` seeds are not likely to tell; the first look is not asked."""
    n = len(trial.found)
    if n < 2 * FIRST:
        return False
    for objective, span, verdict in zip(trial.objectives, look.intervals, look.verdicts, strict=True):
        if verdict is None and span.estimate is not None and span.half_width is not None:
            limit = objective.limit * (1 if objective.statistic is None else 1e3)
            if abs(span.estimate - limit) < HOPELESS * span.half_width * math.sqrt(n / most):
                return True
    return False


def _look(trial: _Trial, confidence: float) -> _Look:
    found = trial.found
    spans = [_span(found, k, objective, confidence) for k, objective in enumerate(trial.objectives)]
    growth = _interval([one.growth for one in found], confidence)
    lost = _interval([one.lost for one in found], confidence)
    return _Look(
        spans,
        [_side(span, objective) for span, objective in zip(spans, trial.objectives, strict=True)],
        [sum(one.carried[k] for one in found) for k in range(len(trial.objectives))],
        growth,
        False if growth.estimate is None else _above(growth, PILES_UP),
        lost,
        _above(lost, LOST),
        max(one.in_system / max(one.requests, 1) for one in found),
    )


def _span(found: Sequence[Evidence], k: int, objective: Objective, confidence: float) -> Interval:
    """The interval of an objective's figure: over seeds, or within the one run that there is."""
    metric = None if objective.statistic is None else LATENCIES[objective.metric]
    if metric not in CURVES:
        return _interval([one.values[k] for one in found], confidence)
    samples = [one.latencies[metric] for one in found]
    if len(samples) == 1:
        return (
            _within(samples[0], objective, confidence)
            if found[0].steady
            else _interval([found[0].values[k]], confidence)
        )
    if objective.statistic == "mean" or not found[0].steady:
        return _interval([one.values[k] for one in found], confidence)
    return pooled.percentile(samples, percentile_of(objective), confidence)


def _within(values: Floats, objective: Objective, confidence: float) -> Interval:
    """The interval that one run gives by itself: its requests are alike in order of time."""
    if len(values) and float(np.ptp(values)) <= 1e-9 * float(values[0]):
        return _interval([float(values[0])], confidence)
    if objective.statistic == "mean":
        return batch_means(values, confidence)
    return quantile(values, percentile_of(objective), independent=False, confidence=confidence)


def _interval(values: Sequence[float | None], confidence: float) -> Interval:
    """Mean with an interval; the figure alone where there is one run."""
    if len(values) == 1 and values[0] is not None:
        return Interval(values[0], n=1, confidence=confidence, refused="the seed changes nothing: there is one run")
    return intervals.mean(values, confidence)


def _ends(span: Interval) -> tuple[float, float] | None:
    if span.low is not None:
        return span.low, math.inf if span.high is None else span.high
    return (span.estimate, span.estimate) if span.n == 1 and span.estimate is not None else None


def _side(span: Interval, objective: Objective) -> bool | None:
    """Whether the interval keeps the limit, breaks it, or holds it."""
    ends = _ends(span)
    if ends is None:
        return None
    low, high = (objective.met_by(end) for end in ends)
    return low if low == high else None


def _above(span: Interval, limit: float) -> bool | None:
    ends = _ends(span)
    if ends is None:
        return None
    return True if ends[0] > limit else None if ends[1] > limit else False


def _attainment(trial: _Trial, look: _Look, confidence: float, *, met: bool | None) -> Attainment:
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


def _broken(trial: _Trial, look: _Look) -> tuple[str, ...]:
    names = [str(o) for o, verdict in zip(trial.objectives, look.verdicts, strict=True) if verdict is False]
    return (*names, *([BACKLOG] if look.grows else []), *([TURNED_AWAY] if look.loses else []))


def _binding(trial: _Trial, look: _Look) -> Binding:
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


def _why(trial: _Trial, look: _Look, met: bool | None) -> str:
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
