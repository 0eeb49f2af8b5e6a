"""The mean latencies of one run once it is warm, and how well this one run knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.metrics import by_request
from serving.records import Records
from serving.tries import intended_ns
from studies.reports import written
from studies.reports.tables import DASH, NAMES, Table, number
from studies.results import Run
from studies.statistics.batch_means import BATCHES, batch_means
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.statistics.warm_up import WarmUp, mser5

LATENCIES = ("ttft", "tpot", "e2el", "queue")
GAIN = 0.2
"""Part of the squared error that a cut must save. Without it intervals of 3,900 requests of chat hold the truth 5 in 100 less often."""
LIVES = 5
"""Mean E2E latencies that a batch must last: load itself comes and goes within a few of them."""


@dataclass(frozen=True)
class Warm:
    """Values of one latency in ms once the run is warm, in order of time, `(k,)`; empty where it never is.

    cut_s: seconds from the first request on that are left out. batches: how many of them last `LIVES` mean E2E latencies.
    refused: why these values say nothing of a long run.
    """

    values: NDArray[np.float64]
    warm_up: WarmUp
    cut_s: float | None
    batches: int
    refused: str


def warm(records: Records) -> dict[str, Warm]:
    """Every latency once the run is warm."""
    sent = intended_ns(records)
    order = np.argsort(sent, kind="stable")
    seconds = {metric: by_request(records, metric)[order] for metric in LATENCIES}
    ended = seconds["e2el"][~np.isnan(seconds["e2el"])]
    life = float(ended.mean()) if len(ended) else 0.0
    first = first_sent_ns(records)
    return {metric: _warm(values, sent[order] - first, life) for metric, values in seconds.items()}


def _warm(seconds: NDArray[np.float64], when: NDArray[np.int64], life: float) -> Warm:
    """seconds: one latency in order of time, `(n,)`, NaN where there is none. when: each was sent, ns. life: mean E2E latency in s."""
    has = ~np.isnan(seconds)
    values, when = seconds[has] * 1e3, when[has]
    found = mser5(values, GAIN)
    if found.cut is None:
        return Warm(values[:0], found, None, 0, found.refused)
    values, when = values[found.cut :], when[found.cut :]
    lives = float((when[-1] - when[0]) / 1e9 / life) if life else 0.0
    needed = LIVES * BATCHES[-1]
    short = f"requests come for {lives:.0f} times a mean E2E latency; batches need {needed}" if lives < needed else ""
    return Warm(values, found, float(when[0]) / 1e9, int(lives / LIVES), short)


def mean_of(found: Warm, confidence: float = CONFIDENCE) -> Interval:
    """Its mean, as an interval of batch means."""
    if found.refused:
        estimate = float(found.values.mean()) if len(found.values) else None
        return Interval(estimate, confidence=confidence, refused=found.refused)
    return batch_means(found.values, confidence, most=found.batches)


def steady_state(records: Records) -> dict[str, dict[str, Any]]:
    """Of each latency: how many `requests` have it, how many are `cut` as warm-up, sent in the first `cut_s` seconds, and the
    `mean_ms` of the others as an interval of batch means; JSON-able. None and a reason under `refused` where there is none."""
    return {metric: _row(found) for metric, found in warm(records).items()}


def first_sent_ns(records: Records) -> int:
    """When the first request was meant to be sent; 0 where none was."""
    sent = intended_ns(records)[records.submitted]
    return int(sent.min()) if len(sent) else 0


def _row(found: Warm) -> dict[str, Any]:
    mean = mean_of(found)
    return {
        "requests": found.warm_up.of,
        "cut": found.warm_up.cut,
        "cut_s": found.cut_s,
        "mean_ms": {"estimate": mean.estimate, "low": mean.low, "high": mean.high, "n": mean.n},
    } | ({"refused": mean.refused} if mean.refused else {})


def interval(found: Mapping[str, Any]) -> Interval:
    """The interval of one latency in milliseconds, of what `steady_state` says of it."""
    mean = found["mean_ms"]
    return Interval(mean["estimate"], mean["low"], mean["high"], mean["n"], CONFIDENCE, found.get("refused", ""))


def tables_of(run: Run) -> list[Table]:
    """A row for each latency; nothing of a result that was written before there was any."""
    found: Mapping[str, Mapping[str, Any]] = run.info.get("steady_state") or {}
    if not found:
        return []
    rows: list[tuple[str, ...]] = []
    reasons: dict[str, list[str]] = {}
    for metric, state in found.items():
        name = NAMES[metric]
        mean = interval(state)
        cut = DASH if state["cut"] is None else f"{state['cut']:,} ({number(state['cut_s'])} s)"
        rows.append((f"{name} (ms)", cut, written.plus_minus(mean), number(mean.n or None)))
        if mean.refused:
            reasons.setdefault(mean.refused, []).append(name)
    notes = [f"{DASH} {', '.join(names)}: {why}" for why, names in reasons.items()]
    if any(state["mean_ms"]["estimate"] is not None for state in found.values()):
        notes.append("Warm-up: MSER-5; ±: of batch means, how well this one run knows the mean of a long one (95 %).")
    return [Table("Steady state", ("", "warm-up cut", "mean after it", "batches"), rows, "\n".join(notes))]
