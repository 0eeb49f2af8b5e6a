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
from collections.abc import Callable, Sequence
from dataclasses import replace

from scenarios.arrivals import ClosedLoop
from scenarios.errors import InputError
from scenarios.objectives import Objective
from scenarios.schema import Scenario
from serving.samples import samples_needed
from studies.capacity import objectives as asked_for
from studies.capacity.attainment import Attainment, attained
from studies.capacity.evidence import has_its_length
from studies.capacity.look import Look, look_at
from studies.capacity.trial import Trial
from studies.statistics import intervals
from studies.statistics.intervals import CONFIDENCE, FEWEST, Interval

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
WORK = 80
"""Times the requests of one run of the first look, `SHORTEST` at least, that all runs of a load together may have: what is not clear by
then costs more than it is worth, and stays open."""
FILLING = 0.05
"""Share of a run's requests that are in the system at once from which the run is too short: filling and draining weigh in."""


def attain(
    scenario: Scenario,
    objectives: Sequence[Objective] | None = None,
    confidence: float = CONFIDENCE,
    *,
    most: int = MOST,
    processes: int | None = None,
    requests: int | None = None,
    longest: int | None = None,
    tell: Callable[[str], None] | None = None,
) -> Attainment:
    """Simulates a scenario under as many seeds as it takes to tell whether it keeps its objectives.

    Args:
        objectives: all must hold; the scenario's own by default.
        most: seeds after which an open question stays open, at least 5. processes: side by side; all processors by default. The
            answer does not depend on them.
        requests: of a run at first, instead of a length that suits; longest: to which runs may grow. Scenarios that are one
            pattern (traces, stages, arrivals with a duration) keep their length.
        tell: hears which runs are begun, in words.

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
    trial = Trial(scenario, chosen, length, processes)
    limit = longest if longest is not None else (length or 0) << LENGTHENINGS
    return _decided(trial, confidence, most, limit, tell)


def first_length(scenario: Scenario, objectives: Sequence[Objective] = ()) -> int:
    """Requests of a run that is long enough for the percentiles of these objectives, and to fill its clients."""
    needed = [SHORTEST, *(10 * samples_needed(o.percentile) for o in objectives if 95 <= (o.percentile or 0) < 100)]
    arrivals = scenario.workload.arrivals
    if isinstance(arrivals, ClosedLoop):
        needed.append(int(arrivals.concurrency / FILLING))
    return max(needed)


def _decided(
    trial: Trial, confidence: float, most: int, longest: int, tell: Callable[[str], None] | None
) -> Attainment:
    """Looks again and again, after more seeds or longer runs, until the answer is clear or stays open."""
    seeds, looks, work = min(FIRST, most), 0, WORK * max(trial.length or 0, SHORTEST)
    grew: float | None = None  # how much piled up in shorter runs
    shorter: list[Interval] | None = None  # what shorter runs said of the objectives
    if trial.length is None:
        trial.grow(2)  # where the seed changes nothing, more would be the same again
    while True:
        if tell is not None:
            tell(_said(trial, seeds))
        trial.grow(seeds)
        looks += 1
        look = look_at(trial, 1 - (1 - confidence) / 2**looks)
        if False in look.verdicts or look.loses:
            return attained(trial, look, confidence, met=False)
        affordable = trial.length is None or 2 * seeds * trial.length <= work
        can_lengthen = trial.length is not None and 2 * trial.length <= longest and affordable
        if look.grows and (not can_lengthen or (grew is not None and (look.growth.estimate or 0.0) > 0.7 * grew)):
            return attained(trial, look, confidence, met=False)
        too_short = look.thin or look.grows is not False or (trial.length is not None and look.filling > FILLING)
        if not too_short and look.loses is False and all(look.verdicts):
            if not _may_rise(trial, look, shorter):
                return attained(trial, look, confidence, met=True)
            if shorter is None and not can_lengthen:
                return attained(trial, look, confidence, met=True)
            if not can_lengthen:
                return replace(attained(trial, look, confidence, met=None), why=RISING)
            shorter = look.intervals
            trial.lengthen(2)
        elif too_short and can_lengthen:
            shorter = look.intervals
            grew = look.growth.estimate if look.grows is not False else None
            length = trial.length or 1
            trial.lengthen(min(look.times, longest // length, work // (seeds * length)))
        elif affordable and not trial.alike and seeds < most and not _hopeless(trial, look, most):
            seeds = min(2 * seeds, most)
        elif look.endless and can_lengthen:
            shorter = look.intervals
            grew = look.growth.estimate if look.grows is not False else None
            trial.lengthen(2)
        else:
            return attained(trial, look, confidence, met=None)


def _said(trial: Trial, seeds: int) -> str:
    runs = "one run" if trial.alike else f"{seeds} seeds"
    return runs if trial.length is None else f"{runs}, {trial.length:,} requests each"


def _may_rise(trial: Trial, look: Look, shorter: list[Interval] | None) -> bool:
    """Whether longer runs might say worse: a latency that is not far from its limit, and is not as it was in shorter runs, or is known
    roughly only.

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


def _hopeless(trial: Trial, look: Look, most: int) -> bool:
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
