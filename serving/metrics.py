"""What a run was worth: every metric once, under the export names of vLLM's serving benchmark.

Times in `summary` are milliseconds where the name says so, seconds otherwise. A figure that the sample cannot carry is
None and its reason stands under `refused`; nothing is ever 0 or infinite for want of data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.config import EngineConfig
from serving.deliveries import token_times
from serving.economics import KEYS, Account, Tariff, account_of
from serving.fragmentation import external_percent, internal_percent
from serving.records import DRAFT_COLUMNS, MOVE_COLUMNS, Records
from serving.request import Status
from serving.samples import Sample, effective_samples, samples_needed
from serving.tries import answered, finish_ns, first_token_ns, intended_ns, last_tries

Floats = NDArray[np.float64]

LATENCIES = ("ttft", "tpot", "itl", "e2el", "queue")
PERCENTILES = (50.0, 90.0, 95.0, 99.0)
_BETWEEN = {
    "ttft": ("arrival_ns", "first_token_ns"),
    "tpot": ("first_token_ns", "finish_ns"),
    "e2el": ("arrival_ns", "finish_ns"),
    "queue": ("arrival_ns", "scheduled_ns"),
}


class SLO(Protocol):
    """Limits of one request in seconds; None where nothing is stated."""

    @property
    def ttft(self) -> float | None: ...
    @property
    def tpot(self) -> float | None: ...
    @property
    def e2e(self) -> float | None: ...


def by_request(records: Records, metric: str) -> Floats:
    """`ttft`, `tpot`, `e2el` or `queue` of every request in seconds, `(n,)`; NaN of those that did not finish, and TPOT
    of those with a single token. Of several tries the last one has the figure, counted from when the first was meant to be sent;
    but its queue time is its own, since what came before was no queue."""
    r = records.requests
    begin, end = _BETWEEN[metric]
    if metric in ("ttft", "e2el"):  # as its client saw it
        taken = (_seen_ns(records, end) - intended_ns(records)) / 1e9
    else:
        taken = (r[end] - r[begin]) / 1e9
    defined = answered(records) & (r["first_token_ns"] >= 0)
    if metric == "tpot":
        defined &= r["output_tokens"] > 1
        taken = taken / np.maximum(r["output_tokens"] - 1, 1)
    return np.where(defined, taken, np.nan)


def _seen_ns(records: Records, column: str) -> NDArray[np.int64]:
    """A time of each row as its client saw it."""
    seen = {"first_token_ns": first_token_ns, "finish_ns": finish_ns}.get(column)
    return records.requests[column] if seen is None else seen(records)


def latencies(records: Records) -> dict[str, Floats]:
    """`by_request` of each metric without those that have none, in order of arrival."""
    order = np.argsort(intended_ns(records), kind="stable")
    found = {metric: by_request(records, metric)[order] for metric in _BETWEEN}
    return {metric: values[~np.isnan(values)] for metric, values in found.items()}


def meets(records: Records, slo: SLO) -> NDArray[np.bool_]:
    """Which requests finished within every limit that is stated for their class, or else for all, `(n,)`. An undefined TPOT
    passes. Of several tries the last one counts, from when the first was meant to be sent."""
    r = records.requests
    good = answered(records)
    sent = intended_ns(records)
    n = np.maximum(r["output_tokens"] - 1, 1)
    tpot = np.where(r["output_tokens"] > 1, (r["finish_ns"] - r["first_token_ns"]) / n, 0.0)
    seen, had = (_seen_ns(records, column) for column in ("first_token_ns", "finish_ns"))
    for name, taken in (("ttft", seen - sent), ("tpot", tpot), ("e2e", had - sent)):
        limit = _limit_ns(records, slo, name)
        if limit is not None:
            good &= taken <= limit
    return good


_NO_LIMIT = np.iinfo(np.int64).max


def _limit_ns(records: Records, slo: SLO, name: str) -> int | NDArray[np.int64] | None:
    """One limit of all requests, or of each, `(n,)`; None where nothing is stated."""
    common: float | None = getattr(slo, name)
    if records.service_class is None or not any(own is not None for own in records.class_slo):
        return None if common is None else round(common * 1e9)
    limits = [common if own is None else own.get(name) for own in records.class_slo]
    ns = [_NO_LIMIT if limit is None else round(limit * 1e9) for limit in limits]
    return np.array(ns, dtype=np.int64)[records.service_class]


def is_promised(records: Records, slo: SLO | None) -> bool:
    """Whether any request has a limit."""
    limits = [] if slo is None else [slo.ttft, slo.tpot, slo.e2e]
    limits += [limit for own in records.class_slo if own is not None for limit in own.values()]
    return any(limit is not None for limit in limits)


def max_concurrent(records: Records) -> int:
    """Most requests that were sent and not yet ended at one time; at equal times ends count first."""
    r = records.requests
    sent = records.submitted & (r["arrival_ns"] >= 0)
    ended = sent & (r["status"] != Status.IN_FLIGHT) & (r["finish_ns"] > r["arrival_ns"])
    gone_at_once = sent & (r["status"] != Status.IN_FLIGHT) & (r["finish_ns"] <= r["arrival_ns"])
    begins = r["arrival_ns"][sent & ~gone_at_once]
    times = np.concatenate([begins, r["finish_ns"][ended]])
    change = np.concatenate([np.ones(len(begins), dtype=np.int64), -np.ones(int(ended.sum()), dtype=np.int64)])
    order = np.lexsort((change, times))
    return int(np.cumsum(change[order]).max(initial=0))


def summary(
    records: Records,
    percentiles: Sequence[float] = PERCENTILES,
    slo: SLO | None = None,
    engine: EngineConfig | None = None,
    *,
    usd_per_hour: float | None = None,
    account: Account | str | None = None,
) -> dict[str, Any]:
    """All metrics of a run under their export keys, JSON-able.

    slo: per-request limits, for goodput. engine: for KV capacity. account: the bill, or why there is none; without it
    usd_per_hour: price of one replica's devices, whose time is then split by tokens alone.
    `refused` maps each key that is None to the reason.
    """
    refused: dict[str, str] = {}
    out: dict[str, Any] = _counts(records)
    deliveries = token_times(records)
    out["itl_reconstructed_requests"] = deliveries.reconstructed
    gap_ns, counts = deliveries.gaps()
    samples = latencies(records)
    for name in LATENCIES:
        if name == "itl":
            describe(out, refused, name, gap_ns / 1e9, percentiles, counts)
        else:
            describe(out, refused, name, samples[name], percentiles, None)
    _throughput(out, refused, records, slo)
    if len(records.drafts):
        _drafts(out, refused, records)
    tpot = out["mean_tpot_ms"]
    put(out, refused, "output_token_throughput_per_user", 1e3 / tpot if tpot else None, "no TPOT is defined")
    _memory(out, refused, records, engine)
    if engine is not None and engine.host_blocks:
        out |= {f"kv_{name}": int(records.steps[name].sum()) for name in MOVE_COLUMNS if name in records.steps}
    if account is None and usd_per_hour is not None:
        replicas = int(str(records.info.get("replicas", len(np.unique(records.steps["replica"])))))
        account = account_of(records, Tariff(np.full(replicas, float(usd_per_hour))))
    _money(out, refused, records, "no price is stated" if account is None else account, slo)
    out["refused"] = refused
    return out


def arrays(records: Records) -> dict[str, list[Any]]:
    """Raw values in seconds, one entry a submitted request, as vLLM's benchmark saves them; `itls` is a list of lists."""
    r = records.requests
    rows = np.flatnonzero(last_tries(records))
    deliveries = token_times(records)
    done = records.finished[rows]
    sent = intended_ns(records)

    def seconds(end: str) -> list[float]:
        return [float(v) for v in np.where(done, (_seen_ns(records, end) - sent)[rows] / 1e9, 0.0)]

    return {
        "input_lens": r["prompt_tokens"][rows].tolist(),
        "output_lens": np.maximum(r["output_tokens"][rows], 0).tolist(),
        "ttfts": seconds("first_token_ns"),
        "itls": [
            (deliveries.gaps_of(i) / 1e9).tolist() if ok else []
            for i, ok in zip(rows.tolist(), done.tolist(), strict=True)
        ],
        "latencies": seconds("finish_ns"),
        "start_times": (sent[rows] / 1e9).tolist(),
        "queue_times": seconds("scheduled_ns"),
        "errors": [
            "" if ok else Status(s).name.lower()
            for ok, s in zip(done.tolist(), r["status"][rows].tolist(), strict=True)
        ],
    }


def put(out: dict[str, Any], refused: dict[str, str], key: str, value: float | int | None, reason: str) -> None:
    out[key] = value
    if value is None:
        refused[key] = reason


def _counts(records: Records) -> dict[str, Any]:
    r = records.requests
    last = last_tries(records)
    count = {s: int((r["status"][last] == s).sum()) for s in Status}
    ended = answered(records)
    submitted = int(last.sum())
    return {
        "submitted": submitted,
        **({} if records.first_tries is None else {"tries": int(records.submitted.sum())}),
        "completed": count[Status.FINISHED],
        "failed": count[Status.REJECTED] + count[Status.TIMED_OUT] + count[Status.ABORTED],
        "rejected": count[Status.REJECTED],
        "timed_out": count[Status.TIMED_OUT],
        "aborted": count[Status.ABORTED],
        "in_flight": count[Status.IN_FLIGHT],
        "never_sent": (records.first_tries or len(r["status"])) - submitted,
        "preemptions": int(np.maximum(r["preemptions"], 0).sum()),
        "total_input_tokens": int(r["prompt_tokens"][ended].sum()),
        "total_output_tokens": int(r["output_tokens"][ended].sum()),
        "max_concurrent_requests": max_concurrent(records),
        "steps": len(records.steps["step"]),
    }


def _label(p: float) -> str:
    return f"p{p:g}"


def describe(
    out: dict[str, Any],
    refused: dict[str, str],
    name: str,
    x: Floats,
    percentiles: Sequence[float],
    counts: NDArray[np.int64] | None,
) -> None:
    """Adds mean, median, std and percentiles of one latency (seconds in, milliseconds out)."""
    keys = {stat: f"{stat}_{name}_ms" for stat in ("mean", "median", "std", *(_label(p) for p in percentiles))}
    if not len(x):
        why = "no request produced a second token" if name in ("tpot", "itl") else "no request finished"
        for key in keys.values():
            put(out, refused, key, None, why)
        return
    mean = float(np.average(x, weights=counts))
    out[keys["mean"]] = mean * 1e3
    ordered = Sample(x, counts)
    out[keys["median"]] = ordered.percentile(50) * 1e3
    out[keys["std"]] = math.sqrt(max(0.0, float(np.average((x - mean) ** 2, weights=counts)))) * 1e3
    for p in percentiles:
        value = ordered.percentile(p)
        # Up to p90 nothing is refused. Of a tail, what must be independent is whether a request lies in it; the gaps of
        # one step are one observation, however many requests share them.
        needed = samples_needed(p) if p >= 95 else 1
        effective = effective_samples(x > value) if needed > 1 else len(x)
        why = f"{effective:.0f} effective samples of {len(x):,}; {_label(p)} needs {needed}"
        put(out, refused, keys[_label(p)], value * 1e3 if effective >= needed else None, why)


def _throughput(out: dict[str, Any], refused: dict[str, str], records: Records, slo: SLO | None) -> None:
    r = records.requests
    sent = last_tries(records)
    duration = None
    if records.finished.any():
        duration = int(r["finish_ns"][records.finished].max() - intended_ns(records)[sent].min()) / 1e9
    why = "no request finished"
    put(out, refused, "duration", duration, why)
    tokens = out["total_output_tokens"]
    for key, amount in (
        ("request_throughput", out["completed"]),
        ("output_throughput", tokens),
        ("total_token_throughput", tokens + out["total_input_tokens"]),
    ):
        put(out, refused, key, amount / duration if duration else None, why)
    if slo is not None and is_promised(records, slo):
        good = int(meets(records, slo).sum())
        put(out, refused, "request_goodput", good / duration if duration else None, why)
        put(
            out, refused, "good_request_fraction", good / int(sent.sum()) if sent.any() else None, "no request was sent"
        )
    else:
        for key in ("request_goodput", "good_request_fraction"):
            put(out, refused, key, None, "no SLO is stated")
    produced = int(np.maximum(r["output_tokens"], 0).sum())
    # Rows of the target model that gave a token, or would have: one that verifies drafts samples for each of them too.
    steps = int((records.steps["sampled"] - records.steps["draft_tokens"]).sum())
    put(
        out,
        refused,
        "target_steps_per_output_token",
        steps / produced if produced and steps else None,
        "no token came out",
    )


def _drafts(out: dict[str, Any], refused: dict[str, str], records: Records) -> None:
    """What became of drafts, dummies left out. A verification yields what stands of its drafts, and one token more."""
    columns = dict(zip(DRAFT_COLUMNS, records.drafts.T, strict=True))
    drafts, accepted = int(columns["drafts"].sum()), int(columns["accepted"].sum())
    verifications = int((columns["drafts"] > 0).sum())
    out["spec_decode_num_drafts"] = verifications
    out["spec_decode_draft_tokens"] = drafts
    out["spec_decode_accepted_tokens"] = accepted
    why = "no draft was verified"
    put(out, refused, "spec_decode_acceptance_rate", 100.0 * accepted / drafts if drafts else None, why)
    length = 1.0 + accepted / verifications if verifications else None
    put(out, refused, "spec_decode_acceptance_length", length, why)


def _memory(out: dict[str, Any], refused: dict[str, str], records: Records, engine: EngineConfig | None) -> None:
    r = records.requests
    seen = r["cached_tokens"] >= 0
    prompts = int(r["prompt_tokens"][seen].sum())
    hit = 100.0 * int(r["cached_tokens"][seen].sum()) / prompts if prompts else None
    put(out, refused, "kv_cache_hit_percent", hit, "no request was scheduled")
    tokens = requests = None
    if engine is not None:
        tokens = engine.usable_blocks * engine.block_size
        if records.finished.any():
            mean = float((r["prompt_tokens"] + r["output_tokens"])[records.finished].mean())
            requests = engine.usable_blocks // math.ceil(mean / engine.block_size)
        if not engine.enable_prefix_caching:  # else tokens belong to several requests at once
            for name, of in (("internal", internal_percent), ("external", external_percent)):
                put(out, refused, f"kv_{name}_fragmentation_percent", of(records, engine), "no KV memory is known")
    put(out, refused, "kv_capacity_tokens", tokens, "the engine's settings are not known")
    put(out, refused, "kv_capacity_requests", requests, "no request finished, so there is no mean length")


def _money(
    out: dict[str, Any], refused: dict[str, str], records: Records, account: Account | str, slo: SLO | None
) -> None:
    """The bill, or why there is none."""
    if isinstance(account, str):
        for key in KEYS:
            put(out, refused, key, None, account)
        return
    found, why = account.figures(meets(records, slo) if slo is not None and is_promised(records, slo) else None)
    out |= found
    refused |= why
