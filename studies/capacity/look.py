"""What one look at the runs of a trial says: the interval of every objective's figure, and on which side of its limit that lies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scenarios.objectives import LATENCIES, Objective
from studies.capacity import pooled
from studies.capacity.evidence import CURVES, Evidence, Floats, percentile_of
from studies.capacity.trial import Trial
from studies.statistics import intervals
from studies.statistics.batch_means import batch_means
from studies.statistics.intervals import Interval
from studies.statistics.quantiles import quantile

PILES_UP = 0.02
"""Share of what arrives that may pile up where a load still counts as sustained: what cannot be told from noise costs runs, and so
many requests too many are within the resolution of a search."""
LOST = 0.01
"""Share of requests that may be turned away or given up."""


@dataclass(frozen=True)
class Look:
    """What one look at the runs says.

    intervals, verdicts (True, False, or None for open), carried (independent samples over those that its figure needs): of every
    objective. growth, grows: of the backlog, as a part of what arrives. lost, loses: of requests that are turned away or given up.
    filling: the largest part of a run's requests that was in the system at once.
    """

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


def look_at(trial: Trial, confidence: float) -> Look:
    """What the runs so far say at a confidence."""
    found = trial.found
    spans = [_span(found, k, objective, confidence) for k, objective in enumerate(trial.objectives)]
    growth = _mean([one.growth for one in found], confidence)
    lost = _mean([one.lost for one in found], confidence)
    return Look(
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
        return _mean([one.values[k] for one in found], confidence)
    samples = [one.latencies[metric] for one in found]
    if len(samples) == 1:
        return (
            _within(samples[0], objective, confidence) if found[0].steady else _mean([found[0].values[k]], confidence)
        )
    if objective.statistic == "mean" or not found[0].steady:
        return _mean([one.values[k] for one in found], confidence)
    return pooled.percentile(samples, percentile_of(objective), confidence)


def _within(values: Floats, objective: Objective, confidence: float) -> Interval:
    """The interval that one run gives by itself: its requests are alike in order of time."""
    if len(values) and float(np.ptp(values)) <= 1e-9 * float(values[0]):
        return _mean([float(values[0])], confidence)
    if objective.statistic == "mean":
        return batch_means(values, confidence)
    return quantile(values, percentile_of(objective), independent=False, confidence=confidence)


def _mean(values: Sequence[float | None], confidence: float) -> Interval:
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
