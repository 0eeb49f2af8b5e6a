"""Figures of a run's requests that were sent once it was warm."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np

from serving.metrics import by_request, describe, is_promised, meets
from serving.tries import intended_ns, last_tries
from studies.results import Run
from studies.statistics.steady_state import LATENCIES, first_sent_ns

WarmUp = float | Literal["mser"]
"""Seconds from the first request on, or what MSER-5 finds for each latency."""


def warm_figures(run: Run, warm_up: WarmUp) -> dict[str, Any]:
    """Mean, median, deviation and percentiles of TTFT, TPOT, E2E and queue time, and the good fraction, by their keys, of the
    requests sent after the warm-up; None of what has none, or where MSER-5 finds no warm-up."""
    warm: dict[str, Any] = {}
    sent = intended_ns(run.records)
    first = first_sent_ns(run.records)
    tails = [float(found[1]) for key in run.summary if (found := re.fullmatch(r"p([\d.]+)_ttft_ms", key))]
    cuts = {metric: _cut_s(run, metric, warm_up) for metric in LATENCIES}
    for metric, cut in cuts.items():
        values = by_request(run.records, metric)
        kept = np.zeros(len(sent), bool) if cut is None else sent - first >= cut * 1e9
        # In order of time, as what says how many independent ones they are needs them.
        order = np.argsort(sent[kept], kind="stable")
        values = values[kept][order]
        describe(warm, {}, metric, values[~np.isnan(values)], tails, None)
    latest = None if None in cuts.values() else max(cut for cut in cuts.values() if cut is not None)
    warm["good_request_fraction"] = None if latest is None else _good(run, first + latest * 1e9)
    return warm


def _cut_s(run: Run, metric: str, warm_up: WarmUp) -> float | None:
    """Seconds from the first request on that one latency leaves out."""
    if warm_up == "mser":
        cut: float | None = run.info["steady_state"][metric]["cut_s"]
        return cut
    return float(warm_up)


def check_warm_up(warm_up: WarmUp) -> None:
    """Raises ValueError if it is no warm-up."""
    if warm_up != "mser" and (isinstance(warm_up, str) or not warm_up >= 0):
        raise ValueError(f"warm_up: found {warm_up!r}, but it is 'mser' or seconds, 0 or more")


def _good(run: Run, from_ns: float) -> float | None:
    """Part of the requests sent from then on that keep every limit; None where nothing is promised."""
    if not is_promised(run.records, run.slo):
        return None
    which = last_tries(run.records) & (intended_ns(run.records) >= from_ns)
    return float(meets(run.records, run.slo)[which].mean()) if which.any() else None
