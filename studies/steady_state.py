"""The mean latencies of one run once it is warm, and how well this one run knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.metrics import by_request
from serving.records import Records
from serving.tries import intended_ns
from studies.results import Run
from studies.statistics.batch_means import batch_means
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.statistics.warm_up import WarmUp, mser5
from studies.tables import DASH, NAMES, Table, number

LATENCIES = ("ttft", "tpot", "e2el", "queue")


def steady_state(records: Records) -> dict[str, dict[str, Any]]:
    """Of each latency: how many `requests` have it, how many are `cut` as warm-up, sent before `cut_s` seconds after the first, and
    the `mean_ms` of the others as an interval of batch means; JSON-able. None and a reason under `refused` where there is none."""
    sent = intended_ns(records)
    order = np.argsort(sent, kind="stable")
    first = first_sent_ns(records)
    found = {}
    for metric in LATENCIES:
        values = by_request(records, metric)[order]
        has = ~np.isnan(values)
        values, when = values[has] * 1e3, sent[order][has]
        warm = mser5(values)
        found[metric] = _row(warm, Interval(None) if warm.cut is None else batch_means(values[warm.cut :]))
        if warm.cut is not None:
            found[metric]["cut_s"] = float(when[warm.cut] - first) / 1e9
    return found


def first_sent_ns(records: Records) -> int:
    """When the first request was meant to be sent; 0 where none was."""
    sent = intended_ns(records)[records.submitted]
    return int(sent.min()) if len(sent) else 0


def _row(warm: WarmUp, mean: Interval) -> dict[str, Any]:
    refused = warm.refused or mean.refused
    return {
        "requests": warm.of,
        "cut": warm.cut,
        "cut_s": None,
        "mean_ms": {"estimate": mean.estimate, "low": mean.low, "high": mean.high, "n": mean.n},
    } | ({"refused": refused} if refused else {})


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
        half = DASH if mean.half_width is None else f"± {number(mean.half_width, 2)}"
        rows.append((f"{name} (ms)", cut, number(mean.estimate), half, number(mean.n or None)))
        if mean.refused:
            reasons.setdefault(mean.refused, []).append(name)
    notes = [f"{DASH} {', '.join(names)}: {why}" for why, names in reasons.items()]
    if any(state["mean_ms"]["estimate"] is not None for state in found.values()):
        notes.append(
            "Warm-up: MSER-5; ±: of batch means, how well this one run knows the mean of a long one (95 %)."
        )
    return [Table("Steady state", ("", "warm-up cut", "mean after it", "95 %", "batches"), rows, "\n".join(notes))]
