"""What one run alone knows of its figures: intervals of requests that follow one another, once it is warm."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from serving.metrics import by_request, is_promised, meets
from serving.tries import intended_ns, last_tries
from studies.results import Run
from studies.statistics.batch_means import batch_means
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.statistics.proportions import proportion
from studies.statistics.quantiles import quantile
from studies.statistics.warm_up import mser5

KEYS = "mean_ttft_ms, p95_ttft_ms (or of tpot, e2el, queue) and good_request_fraction"


def within_run(run: Run, key: str, confidence: float = CONFIDENCE) -> Interval:
    """A figure of one run after its warm-up (MSER-5), with an interval that takes neighbouring requests for as alike as they are.

    key: `mean_` or `p95_` (any percentile) of `ttft`, `tpot`, `e2el` or `queue` in `_ms`: batch means, or order statistics of as many
    requests as they are worth; `good_request_fraction`: of that many too, after the longest of the warm-ups.

    Raises:
        ValueError: a key that is no figure of single requests.
    """
    found = re.fullmatch(r"(?:mean|p([\d.]+))_(ttft|tpot|e2el|queue)_ms", key)
    if key == "good_request_fraction":
        return _good(run, confidence)
    if found is None:
        raise ValueError(f"key: found {key!r}, but one run has intervals of {KEYS} only")
    values = by_request(run.records, found[2])[_order(run)] * 1e3
    values = values[~np.isnan(values)]
    warm = mser5(values)
    if warm.cut is None:
        return Interval(None, confidence=confidence, refused=warm.refused)
    if found[1] is None:
        return batch_means(values[warm.cut :], confidence)
    return quantile(values[warm.cut :], float(found[1]), independent=False, confidence=confidence)


def _good(run: Run, confidence: float) -> Interval:
    slo = None if run.scenario is None else run.scenario.slo
    if slo is None or not is_promised(run.records, slo):
        return Interval(None, confidence=confidence, refused="no SLO is stated")
    steady = run.info["steady_state"].values()
    for state in steady:
        if state["cut"] is None and state["requests"]:
            return Interval(None, confidence=confidence, refused=state["refused"])
    order = _order(run)
    sent = intended_ns(run.records)[order] / 1e9
    warm = sent >= sent[0] + max(state["cut_s"] or 0.0 for state in steady)
    return proportion(meets(run.records, slo)[order][warm], independent=False, confidence=confidence)


def _order(run: Run) -> NDArray[np.intp]:
    """Rows of requests that were sent, in order of when."""
    which = np.flatnonzero(last_tries(run.records))
    return which[np.argsort(intended_ns(run.records)[which], kind="stable")]
