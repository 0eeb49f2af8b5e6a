"""What one run says about a load: the objectives' figures of its steady part, and whether its backlog grows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from scenarios.arrivals import ClosedLoop, knows_its_number
from scenarios.objectives import LATENCIES, Objective
from scenarios.schema import Scenario
from scenarios.varying_rate import Diurnal, Ramp, Spike, Staged
from scenarios.workload_spec import WorkloadSpec
from serving.metrics import by_request, meets
from serving.records import Records
from serving.request import Cause, Status
from serving.samples import Sample, effective_samples, samples_needed
from serving.tries import intended_ns, last_tries
from studies.capacity.resources import resource_of
from studies.results import Run
from studies.run import simulate
from studies.sweeps.cells import Row, figures

STEADY = (0.2, 0.95)
"""Part of the openings (requests that follow no other) between whose arrivals a run counts: before it fills, after it drains."""
CURVES, QUANTILES = ("ttft", "tpot", "e2el", "queue"), (50.0, 95.0, 99.0)
"""Latencies, and their percentiles, of every run."""
_TIMES = 400  # at which the requests in the system are counted
_TAIL = 95.0  # percentile from which the sample must be able to hold it

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """One run. All but `row` is of its steady part, or of the whole run where that has no steady part.

    Args:
        row: figures of the whole run by key (`studies.sweeps.cells.figures`), and `binding.resource`. sentence: what binds it.
        values: a figure an objective, as exported (milliseconds for latencies); None where no request has one.
        carried: how many times as many independent samples each figure has as it needs; below 1 the run does not carry it. tails: the
            same of percentiles of every latency, by metric and percentile.
        latencies: of every request that has one, in milliseconds, in order of arrival; by metric. steady: whether it has a steady part.
        growth: share of what arrives that piles up; None where a run has no steady part.
        lost: share of requests turned away or given up, but for those that no empty engine could hold.
        in_system: requests sent and not yet ended, mean over time; requests: that were sent in all. cpu_seconds: that it took.
    """

    row: Row
    values: tuple[float | None, ...]
    carried: tuple[float, ...]
    growth: float | None
    lost: float
    in_system: float
    requests: int
    sentence: str = ""
    cpu_seconds: float = field(default=0.0, compare=False)
    latencies: Mapping[str, Floats] = field(default_factory=dict, compare=False, repr=False)
    tails: Mapping[tuple[str, float], float] = field(default_factory=dict, compare=False, repr=False)
    steady: bool = True


def gather(asked: tuple[Scenario, tuple[Objective, ...]]) -> Evidence:
    """Simulates a scenario and reads what it says about objectives."""
    scenario, objectives = asked
    began = time.process_time()
    found = read(simulate(scenario), objectives, steady=not is_a_pattern(scenario))
    return replace(found, cpu_seconds=time.process_time() - began)


def is_a_pattern(scenario: Scenario) -> bool:
    """Whether its run is one stated course of events, to be judged as a whole: stages, a ramp, a spike, a day, arrivals with a
    duration, a run with a horizon."""
    return scenario.horizon is not None or any(
        isinstance(part.arrivals, Staged | Ramp | Spike | Diurnal) or knows_its_number(part.arrivals)
        for part in parts_of(scenario)
        if not part.replays
    )


def has_its_length(scenario: Scenario) -> bool:
    """Whether its runs cannot be made longer: a pattern, or a trace."""
    return is_a_pattern(scenario) or any(part.replays for part in parts_of(scenario))


def parts_of(scenario: Scenario) -> list[WorkloadSpec]:
    """The parts of a mix, or the workload itself."""
    return list((scenario.workload.mix or {"": scenario.workload}).values())


def read(run: Run, objectives: Sequence[Objective], *, steady: bool = True) -> Evidence:
    """The evidence of a finished run. steady: leave out its beginning and its end."""
    records = run.records
    sent, ended = _lives(records)
    window = _window(records, sent) if steady else (float(sent.min(initial=0)), float(sent.max(initial=0)))
    judged = last_tries(records)
    judged &= (intended_ns(records) >= window[0]) & (intended_ns(records) <= window[1])
    order = np.argsort(intended_ns(records), kind="stable")
    order = order[judged[order]]
    taken = {metric: _of(records, metric, order) for metric in CURVES}
    values, carried = zip(*(_figure(run, objective, order, taken, steady) for objective in objectives), strict=True)
    times = np.linspace(*window, _TIMES)
    there = np.searchsorted(sent, times, side="right") - np.searchsorted(ended, times, side="right")
    row = figures(run) | {"binding.resource": resource_of(run.info["binding"])}
    growth = _growth(times, there, sent, window) if steady and not _waits_for_answers(run) else None
    said = str(run.info["binding"]["sentence"])
    return Evidence(
        row,
        values,
        carried,
        growth,
        _lost(records, order),
        float(there.mean()),
        len(sent),
        said,
        latencies=taken,
        tails=_tails(taken, steady),
        steady=steady,
    )


def _of(records: Records, metric: str, rows: NDArray[np.int64]) -> Floats:
    values = by_request(records, metric)[rows] * 1e3
    return np.asarray(values[~np.isnan(values)])


def _lives(records: Records) -> tuple[Floats, Floats]:
    """Sorted times in ns at which requests were sent, and at which they ended; each request once, however many tries."""
    rows = last_tries(records)
    ended = rows & (records.requests["status"] != Status.IN_FLIGHT)
    sent = np.sort(intended_ns(records)[rows].astype(np.float64))
    return sent, np.sort(records.requests["finish_ns"][ended].astype(np.float64))


def _window(records: Records, sent: Floats) -> tuple[float, float]:
    """Begin and end in ns, by the arrivals of openings: of a session its first request, else every request."""
    if not len(sent):
        return 0.0, 0.0
    session = records.session
    at = intended_ns(records)[last_tries(records)].astype(np.float64)
    of = session[last_tries(records)]
    talks = np.full(int(of.max(initial=-1)) + 1, np.inf)
    np.minimum.at(talks, of[of >= 0], at[of >= 0])
    openings = np.sort(np.concatenate([at[of < 0], talks[np.isfinite(talks)]]))
    begin, end = np.quantile(openings, STEADY)
    return float(begin), float(end)


def _figure(
    run: Run, objective: Objective, rows: NDArray[np.int64], taken: Mapping[str, Floats], steady: bool
) -> tuple[float | None, float]:
    """An objective's figure of these requests, in order of arrival, and how well they carry it."""
    if objective.metric == "good_request_fraction":
        good = meets(run.records, run.slo)[rows]
        if not len(good):
            return None, 0.0
        return float(good.mean()), _carried(good, 100 * max(objective.limit, 1 - objective.limit), steady)
    if objective.statistic is None or objective.metric == "itl":
        found = run.summary.get(objective.key)
        return found, float("inf") if found is not None else 0.0
    values = taken[LATENCIES[objective.metric]]
    if not len(values):
        return None, 0.0
    if objective.statistic == "mean":
        return float(values.mean()), float("inf")
    p = percentile_of(objective)
    figure = Sample(values, None).percentile(p)
    return figure, _carried(values > figure, p, steady)


def percentile_of(objective: Objective) -> float:
    """Of a latency's percentile or median."""
    return 50.0 if objective.percentile is None else objective.percentile


def _tails(taken: Mapping[str, Floats], steady: bool) -> dict[tuple[str, float], float]:
    found = {}
    for metric, values in taken.items():
        sample = Sample(values, None)
        for p in QUANTILES:
            found[metric, p] = _carried(values > sample.percentile(p), p, steady) if len(values) else 0.0
    return found


def _carried(beyond: NDArray[np.bool_], p: float, steady: bool) -> float:
    """Samples over those that a percentile of the tail needs. Independent must be whether a request lies beyond it; but of one course
    of events the requests are all that there are, and what varies are its replications."""
    if not _TAIL <= p < 100:
        return float("inf")
    return (effective_samples(beyond) if steady else len(beyond)) / samples_needed(p)


def _growth(times: Floats, there: NDArray[np.int64], sent: Floats, window: tuple[float, float]) -> float | None:
    """Slope of the number in the system over that of arrivals: 0 where as many end as come, 1 where none ends."""
    arrived = np.searchsorted(sent, times, side="right") - np.searchsorted(sent, window[0], side="left")
    if len(sent) < 2 or arrived[-1] <= arrived[0]:
        return None
    slope = np.polyfit(times - times[0], there.astype(np.float64), 1)[0]
    rate = float(arrived[-1]) / (times[-1] - times[0])
    return float(slope / rate)


def _waits_for_answers(run: Run) -> bool:
    """Whether clients send only when they have an answer, so that nothing can pile up."""
    return run.scenario is not None and isinstance(run.scenario.workload.arrivals, ClosedLoop)


def _lost(records: Records, rows: NDArray[np.int64]) -> float:
    r = records.requests
    status, cause = r["status"][rows], r["cause"][rows]
    gone = np.isin(status, (Status.TIMED_OUT, Status.ABORTED)) | (
        (status == Status.REJECTED) & (cause != Cause.NEVER_FITS)
    )
    return float(gone.mean()) if len(gone) else 0.0
