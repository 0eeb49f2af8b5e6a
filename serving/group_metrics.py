"""What a run was worth to each of its service classes and tenants: the metrics of `serving.metrics`, of some requests only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.metrics import PERCENTILES, SLO, by_request, describe, is_promised, meets, put
from serving.records import Records
from serving.request import Status
from serving.tries import finish_ns, intended_ns, last_tries

MOST_GROUPS = 50
"""Tenants of a trace may be thousands: figures are of the ones that send most."""
_LATENCIES = ("ttft", "tpot", "e2el", "queue")


def by_class(
    records: Records, slo: SLO | None = None, percentiles: Sequence[float] = PERCENTILES
) -> dict[str, dict[str, Any]]:
    """Figures of each class under the export keys of `serving.metrics.summary`, in the order of the classes; good are requests
    that keep their own class's limits. Empty where there are no classes."""
    if records.service_class is None:
        return {}
    return _groups(records, records.service_class, records.classes, slo, percentiles)


def by_tenant(
    records: Records, slo: SLO | None = None, percentiles: Sequence[float] = PERCENTILES
) -> dict[str, dict[str, Any]]:
    """The same of each tenant, those that send most first; empty where there is only one."""
    if len(records.tenants) < 2:
        return {}
    return _groups(records, records.tenant, records.tenants, slo, percentiles, by_size=True)


def _groups(
    records: Records,
    codes: NDArray[np.int64],
    names: Sequence[str],
    slo: SLO | None,
    percentiles: Sequence[float],
    by_size: bool = False,
) -> dict[str, dict[str, Any]]:
    last = last_tries(records)
    order = np.argsort(intended_ns(records), kind="stable")  # what is autocorrelated is so in time
    latencies = {metric: by_request(records, metric)[order] for metric in _LATENCIES}
    good = None
    if is_promised(records, slo):
        good = meets(records, _Nothing() if slo is None else slo)
    counts = np.bincount(codes[last], minlength=len(names))
    chosen = np.argsort(-counts, kind="stable")[:MOST_GROUPS].tolist() if by_size else range(len(names))
    ended = records.finished & last
    duration = None
    if ended.any():
        duration = int(finish_ns(records)[ended].max() - intended_ns(records)[last].min()) / 1e9
    found = {}
    for code in chosen:
        mine = codes == code
        out = _counts(records, mine, last)
        refused: dict[str, str] = {}
        ordered = mine[order]
        for metric, values in latencies.items():
            own = values[ordered]
            describe(out, refused, metric, own[~np.isnan(own)], percentiles, None)
        sent, kept = int((last & mine).sum()), None if good is None else int((good & mine).sum())
        why = "no SLO is stated" if good is None else "no request was sent"
        put(out, refused, "good_request_fraction", kept / sent if kept is not None and sent else None, why)
        why = "no SLO is stated" if good is None else "no request finished"
        put(out, refused, "request_goodput", kept / duration if kept is not None and duration else None, why)
        tokens = out["total_output_tokens"] / duration if duration else None
        put(out, refused, "output_throughput", tokens, "no request finished")
        out["refused"] = refused
        found[names[code]] = out
    return found


class _Nothing:
    """No limit."""

    ttft = tpot = e2e = None


def _counts(records: Records, mine: NDArray[np.bool_], last: NDArray[np.bool_]) -> dict[str, Any]:
    r = records.requests
    status = r["status"][mine & last]
    ended = records.finished & mine & last
    seen = mine & (r["cached_tokens"] >= 0)
    prompts = int(r["prompt_tokens"][seen].sum())
    counted = {
        "submitted": len(status),
        "completed": int((status == Status.FINISHED).sum()),
        "rejected": int((status == Status.REJECTED).sum()),
        "timed_out": int((status == Status.TIMED_OUT).sum()),
        "aborted": int((status == Status.ABORTED).sum()),
        "in_flight": int((status == Status.IN_FLIGHT).sum()),
        "preemptions": int(np.maximum(r["preemptions"][mine], 0).sum()),
        "total_input_tokens": int(r["prompt_tokens"][ended].sum()),
        "total_output_tokens": int(r["output_tokens"][ended].sum()),
        "kv_cache_hit_percent": 100.0 * int(r["cached_tokens"][seen].sum()) / prompts if prompts else None,
    }
    return counted | ({} if records.first_tries is None else {"tries": int((records.submitted & mine).sum())})
