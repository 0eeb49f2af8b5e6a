"""What one run alone knows of its figures: intervals of requests that follow one another, once it is warm."""

from __future__ import annotations

import re

import numpy as np

from serving.metrics import is_promised, meets
from serving.tries import intended_ns, last_tries
from studies.results import Run
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.statistics.proportions import proportion
from studies.statistics.quantiles import quantile
from studies.statistics.steady_state import mean_of, warm

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
    state = warm(run.records)[found[2]]
    if found[1] is None:
        return mean_of(state, confidence)
    if state.refused:
        return Interval(None, confidence=confidence, refused=state.refused)
    return quantile(state.values, float(found[1]), independent=False, confidence=confidence)


def _good(run: Run, confidence: float) -> Interval:
    if not is_promised(run.records, run.slo):
        return Interval(None, confidence=confidence, refused="no SLO is stated")
    states = [state for state in warm(run.records).values() if state.warm_up.of]
    if refused := next((state.refused for state in states if state.refused), ""):
        return Interval(None, confidence=confidence, refused=refused)
    rows = np.flatnonzero(last_tries(run.records))
    rows = rows[np.argsort(intended_ns(run.records)[rows], kind="stable")]
    sent = intended_ns(run.records)[rows] / 1e9
    kept = rows[sent >= sent[0] + max((state.cut_s or 0.0 for state in states), default=0.0)]
    return proportion(meets(run.records, run.slo)[kept], independent=False, confidence=confidence)
