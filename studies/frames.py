"""A run's requests and steps as Arrow tables with readable columns, for notebooks: times in seconds, null where something did not happen.

`REQUESTS` and `STEPS` say what every column is; the tables carry the same texts as metadata of their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError
from serving.metrics import by_request, meets
from serving.request import Cause, Status
from serving.tries import finish_ns, first_token_ns, last_tries

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from studies.results import Run

REQUESTS = {
    "request": "number of the request in its workload, from 0",
    "attempt": "0, or which further try of its client or router this row is",
    "last_attempt": "whether this row tells what became of the request",
    "status": "finished, rejected, timed_out, aborted, in_flight; null where it was never sent",
    "cause": "why it was refused or given up, such as queue_timeout; null where it was served",
    "service_class": "its service class",
    "tenant": "its tenant; null without",
    "session": "its conversation; null without",
    "replica": "the replica that served it",
    "arrival": "s, when its client meant to send it",
    "scheduled": "s, start of the first step that computed any of it",
    "first_token": "s, when its client had the first token",
    "finish": "s, when its client had the whole answer or was sent away",
    "prompt_tokens": "tokens of its prompt",
    "cached_tokens": "of these, found in the prefix cache when it was first admitted",
    "output_tokens": "tokens that were produced",
    "queue": "s, from arrival to scheduled",
    "ttft": "s, time to first token, queue included; null where it did not finish",
    "tpot": "s, time per output token after the first; null where there is only one",
    "e2e": "s, from arrival to finish; null where it did not finish",
    "preemptions": "how often it was preempted",
    "good": "whether it finished within every limit that it was promised",
    "usd": "USD of device time, without idle time; null without a price, and of a run that was read from its folder",
}
"""Columns of `requests` with unit and meaning."""

STEPS = {
    "replica": "the replica that computed it",
    "step": "number of the step on its replica, from 0",
    "scheduled": "s, when its batch was decided",
    "start": "s, when it began to compute",
    "end": "s, when its tokens were there",
    "kind": "prefill, decode or mixed",
    "prefill_sequences": "requests of which prompt tokens, or drafts, were computed",
    "prefill_tokens": "their tokens in this step",
    "decode_sequences": "requests that decoded one token",
    "decode_context": "tokens of KV before the step, summed over these",
    "sampled": "tokens that came out",
    "running": "requests in the batch or running beside it",
    "waiting": "requests in the queue",
    "kv_blocks": "KV blocks that requests owned",
    "accepted_tokens": "drafts that stood",
}
"""Columns of `steps` with unit and meaning."""


def requests(run: Run) -> pa.Table:
    """One row a request, or a try of one that was sent: columns `REQUESTS`."""
    records = run.records
    r = records.requests
    n, rows = records.first_tries or len(r["status"]), len(r["status"])
    sent = r["status"] >= 0
    usd = run.account.usd if run.account is not None else np.full(rows, np.nan)
    table = _table(
        REQUESTS,
        {
            "request": np.arange(rows) % max(n, 1),
            "attempt": np.arange(rows) // max(n, 1),
            "last_attempt": last_tries(records),
            "status": _named(r["status"], {s.value: s.name.lower() for s in Status}),
            "cause": _named(r["cause"], {c.value: c.name.lower() for c in Cause if c}),
            "service_class": _coded(records.service_class, records.classes, rows),
            "tenant": _coded(records.tenant, records.tenants, rows),
            "session": _or_null(records.session, records.session >= 0),
            "replica": _or_null(r["replica"], sent & (r["scheduled_ns"] >= 0)),
            "arrival": _seconds(r["arrival_ns"]),
            "scheduled": _seconds(r["scheduled_ns"]),
            "first_token": _seconds(first_token_ns(records)),
            "finish": _seconds(finish_ns(records)),
            "prompt_tokens": _or_null(r["prompt_tokens"], sent),
            "cached_tokens": _or_null(r["cached_tokens"], sent & (r["scheduled_ns"] >= 0)),
            "output_tokens": _or_null(r["output_tokens"], sent),
            "queue": _or_null((r["scheduled_ns"] - r["arrival_ns"]) / 1e9, r["scheduled_ns"] >= 0),
            "ttft": _or_null(by_request(records, "ttft")),
            "tpot": _or_null(by_request(records, "tpot")),
            "e2e": _or_null(by_request(records, "e2el")),
            "preemptions": _or_null(r["preemptions"], sent),
            "good": meets(records, run.slo),
            "usd": _or_null(usd),
        },
    )
    return table if n == rows else table.filter(sent | (np.arange(rows) < n))


def steps(run: Run) -> pa.Table:
    """One row an engine step: columns `STEPS`."""
    s = run.records.steps
    prefill, decode = s["prefill_sequences"] > 0, s["decode_sequences"] > 0
    kind = np.where(prefill & decode, 2, np.where(prefill, 0, 1))
    own = {name: s[name] for name in STEPS if name in s}
    times = {name: s[f"{name}_ns"] / 1e9 for name in ("scheduled", "start", "end")}
    return _table(STEPS, own | times | {"kind": _named(kind, {0: "prefill", 1: "decode", 2: "mixed"})})


def frame(run: Run, what: Literal["requests", "steps"] = "requests") -> pd.DataFrame:
    """The same as a pandas frame.

    Raises:
        InputError: pandas is not installed, or there is no such table.
    """
    found = {"requests": requests, "steps": steps}.get(what)
    if found is None:
        raise InputError(f"found {what!r}, allowed: requests, steps")
    return to_pandas(found(run))


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """An Arrow table as a pandas frame.

    Raises:
        InputError: pandas is not installed.
    """
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise InputError(
            "a frame needs pandas, which is not installed: pip install pandas; the Arrow table of the same columns does not"
        ) from None
    return table.to_pandas()


def _table(texts: Mapping[str, str], columns: Mapping[str, Any]) -> pa.Table:
    """Columns in the order of their texts, which become metadata."""
    import pyarrow as pa

    arrays = [pa.array(columns[name]) for name in texts]
    fields = [
        pa.field(name, array.type, metadata={"description": text})
        for (name, text), array in zip(texts.items(), arrays, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _seconds(ns: NDArray[np.int64]) -> pa.Array:
    return _or_null(ns / 1e9, ns >= 0)


def _or_null(values: NDArray[Any], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """Null where not known, or where not a number."""
    import pyarrow as pa

    known = ~np.isnan(values) if known is None else known
    return pa.array(values, mask=~known)


def _named(codes: NDArray[np.int64], names: Mapping[int, str]) -> pa.Array:
    """Names of codes; null for those without one."""
    import pyarrow as pa

    return pa.array([names.get(code) for code in codes.tolist()], pa.string())


def _coded(codes: NDArray[np.int64] | None, names: tuple[str, ...], rows: int) -> pa.Array:
    """Names by their place; of all rows the first without codes."""
    if codes is None:
        codes = np.zeros(rows, dtype=np.int64)
    return _named(codes, dict(enumerate(names)))
