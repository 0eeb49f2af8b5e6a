"""Where a curve says that objectives break: between two loads, interpolated. An estimate; a search decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from scenarios.objectives import parse_objective
from studies.capacity.attainment import BACKLOG, TURNED_AWAY, Attainment, beyond
from studies.capacity.look import LOST, PILES_UP
from studies.capacity.search import Capacity, wants_load
from studies.statistics.intervals import Interval

MIDDLE, WORSE, BETTER = "middle", "worse", "better"
"""Of an interval: its estimate, and the end that is nearer to breaking a limit, or farther from it."""


@dataclass(frozen=True)
class Boundary:
    """A load at which an objective passes its limit.

    load: interpolated. low, high: where the ends of the figure's interval pass it, or the loads that were run around it. objective: as
    text, `backlog` or `turned away`.
    """

    load: float
    low: float
    high: float
    objective: str


def upper(found: Capacity) -> Boundary | None:
    """The lowest load at which something breaks where all held below; None where nothing does, or the lowest load is too much."""
    if is_beyond(found, min(found.curve)):
        return None
    return _first(found, rising=True)


def lower(found: Capacity) -> Boundary | None:
    """The load from which everything that wants load (a throughput) holds; None where that is so from the lowest on, or never."""
    return _first(found, rising=False)


def is_beyond(found: Capacity, x: float) -> bool:
    """Whether a load looks like too much: an objective that wants no load is over its limit, or the load is not sustained."""
    tried = found.curve[x]
    return any(_share(tried, name, MIDDLE) > 1 for name in _names(found, True))


def _first(found: Capacity, rising: bool) -> Boundary | None:
    passed = [b for name in _names(found, rising) if (b := _crossing(found, name, rising)) is not None]
    if not passed:
        return None
    return min(passed, key=lambda b: b.load) if rising else max(passed, key=lambda b: b.load)


def _names(found: Capacity, rising: bool) -> list[str]:
    """What more load breaks, or what it keeps."""
    names = [str(o) for o in found.objectives if wants_load(o) != rising]
    return [*names, BACKLOG, TURNED_AWAY] if rising else names


def _crossing(found: Capacity, name: str, rising: bool) -> Boundary | None:
    """Where a figure passes its limit: upwards the first time, downwards the last time."""
    at = _pass(found, name, MIDDLE, rising)
    if at is None:
        return None
    early = _pass(found, name, WORSE if rising else BETTER, rising)
    late = _pass(found, name, BETTER if rising else WORSE, rising)
    loads = list(found.curve)
    low = max((x for x in loads if x < at), default=loads[0]) if early is None or early >= at else early
    high = min((x for x in loads if x > at), default=loads[-1]) if late is None or late <= at else late
    return Boundary(at, min(low, at), max(high, at), name)


def _pass(found: Capacity, name: str, end: str, rising: bool) -> float | None:
    shares = [(x, _share(tried, name, end)) for x, tried in found.curve.items()]
    places = [_between(a, b) for a, b in pairwise(shares) if ((a[1] <= 1 < b[1]) if rising else (a[1] > 1 >= b[1]))]
    return None if not places else places[0] if rising else places[-1]


def _between(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Where the line through two points is 1, on logarithmic scales; the middle where a figure has no logarithm."""
    (x, r), (y, s) = a, b
    if min(r, s) <= 0 or not math.isfinite(r) or not math.isfinite(s):
        return math.sqrt(x * y)
    part = math.log(r) / (math.log(r) - math.log(s))
    return float(x * (y / x) ** part)


def _share(tried: Attainment, name: str, end: str) -> float:
    """A figure over its limit, above 1 it is broken; or that of one end of its interval, where that has one."""
    if name in (BACKLOG, TURNED_AWAY):
        if name not in tried.broken:  # it is noisy, and counts where it is seen to be too large
            return 0.0
        span, limit = (tried.growth, PILES_UP) if name == BACKLOG else (tried.lost, LOST)
        return max(_end(span, end, "<=") or 0.0, 0.0) / limit
    objective = parse_objective(name)
    return beyond(Interval(_end(tried.intervals[name], end, objective.comparison)), objective)


def _end(span: Interval, end: str, comparison: str) -> float | None:
    if end == MIDDLE or span.estimate is None:
        return span.estimate
    found = span.high if (end == WORSE) == (comparison == "<=") else span.low
    return span.estimate if found is None else found
