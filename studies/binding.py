"""What binds a run: idle time, a queue and its cause, and the cost terms that busy time goes to."""

from __future__ import annotations

from typing import Any

import numpy as np

from serving.config import EngineConfig
from serving.plan import StepShape
from serving.records import Records
from sim.cost import CostModel

SAMPLES = 240  # steps whose terms are evaluated, at equal distances of busy time: shares to about one percent
FULL = 0.95  # share of KV blocks from which memory counts as full
QUEUE = 0.2  # share of busy time with somebody waiting from which a run counts as queueing


def shape_of(steps: dict[str, Any], row: int) -> StepShape:
    """The shape of a recorded step. Of several chunks only sums are recorded, so they are taken as equal."""
    chunks, tokens = int(steps["prefill_sequences"][row]), int(steps["prefill_tokens"][row])
    prefill: tuple[tuple[int, int], ...] = ()
    if chunks:
        sizes = [tokens // chunks + (i < tokens % chunks) for i in range(chunks)]
        context = (int(steps["prefill_attention"][row]) - sum(q * (q + 1) // 2 for q in sizes)) / max(tokens, 1)
        prefill = tuple((q, max(0, round(context))) for q in sizes)
    names = ("decode_sequences", "decode_context", "decode_max_context", "sampled")
    return StepShape(prefill, *(int(steps[name][row]) for name in names))


def cost_shares(records: Records, cost: CostModel) -> dict[str, float]:
    """Shares of busy time by cost term, largest first; empty without steps."""
    steps = records.steps
    taken = steps["end_ns"] - steps["start_ns"]
    if not len(taken) or not taken.sum():
        return {}
    ends = np.cumsum(taken)
    at = (np.arange(SAMPLES) + 0.5) / SAMPLES * ends[-1]
    shares: dict[str, float] = {}
    for row in np.searchsorted(ends, at).tolist():
        terms = cost.terms(shape_of(steps, row))
        total = sum(terms.values()) or 1.0
        for name, ns in terms.items():
            shares[name] = shares.get(name, 0.0) + ns / total / SAMPLES
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def extrapolated(records: Records, cost: CostModel) -> tuple[float, str | None]:
    """Share of busy time outside the cost model's measured domain, and the reason most often given."""
    steps = records.steps
    taken = steps["end_ns"] - steps["start_ns"]
    if not len(taken) or not taken.sum():
        return 0.0, None
    ends = np.cumsum(taken)
    at = (np.arange(SAMPLES) + 0.5) / SAMPLES * ends[-1]
    reasons: dict[str, int] = {}
    for row in np.searchsorted(ends, at).tolist():
        reason = cost.extrapolation(shape_of(steps, row))
        if reason is not None:
            reasons[reason] = reasons.get(reason, 0) + 1
    if not reasons:
        return 0.0, None
    return sum(reasons.values()) / SAMPLES, max(reasons, key=lambda reason: reasons[reason])


def binding(records: Records, engine: EngineConfig, cost: CostModel | None, duration: float | None) -> dict[str, Any]:
    """What binds, JSON-able.

    busy: share of the run in which an engine computed. batch: requests that run at once, mean of busy time. waiting: share of busy time with somebody in the queue.
    cause: `kv`, `sequences`, `tokens`, or `other`, of the steps with a queue; None without one. terms: `cost_shares`.
    sentence: the same in words.
    """
    steps = records.steps
    taken = (steps["end_ns"] - steps["start_ns"]).astype(np.float64)
    total = float(taken.sum())
    out: dict[str, Any] = {"busy": None, "waiting": None, "cause": None, "terms": {}, "extrapolated": 0.0}
    if not duration or not total:
        out["sentence"] = "Nothing ran, so nothing binds."
        return out
    replicas = len(np.unique(steps["replica"]))
    out["busy"] = min(1.0, total / (duration * 1e9 * replicas))
    queue = steps["waiting"] > 0
    out["waiting"] = float(taken[queue].sum()) / total
    out["batch"] = float((taken * steps["running"]).sum()) / total
    if out["waiting"] >= QUEUE:
        out["cause"] = _cause(steps, taken * queue, engine)
    if cost is not None:
        out["terms"] = cost_shares(records, cost)
        out["extrapolated"], out["extrapolation"] = extrapolated(records, cost)
    out["sentence"] = _sentence(out, engine)
    return out


def _cause(steps: dict[str, Any], weight: Any, engine: EngineConfig) -> str:
    """Which limit was met for most of the time in which somebody waited."""
    met = {
        "kv": steps["kv_blocks"] >= FULL * engine.usable_blocks,
        "sequences": steps["running"] >= engine.max_num_seqs,
        "tokens": steps["prefill_tokens"] + steps["decode_sequences"] >= engine.max_num_batched_tokens,
    }
    shares = {name: float(weight[rows].sum()) for name, rows in met.items()}
    best = max(shares, key=lambda name: shares[name])
    return best if shares[best] > 0.25 * float(weight.sum()) else "other"


def _sentence(found: dict[str, Any], engine: EngineConfig) -> str:
    causes = {
        "kv": f"KV memory is full ({engine.usable_blocks * engine.block_size:,} tokens)",
        "sequences": f"max_num_seqs ({engine.max_num_seqs}) requests run already",
        "tokens": f"the step's budget (max_num_batched_tokens {engine.max_num_batched_tokens}) is spent",
        "other": f"the {engine.batching} batching lets no one in",
    }
    busy, waiting, cause = found["busy"], found["waiting"], found["cause"]
    if cause:
        said = f"The queue binds: somebody waits in {waiting:.0%} of the busy time, mostly because {causes[cause]}."
    else:
        some = f"Somebody waits in only {waiting:.0%} of the busy time" if waiting >= 0.005 else "Nobody waits"
        said = (
            f"{some}, so latency is step time: {found['batch']:.1f} requests run at once on average, "
            f"and engines are busy {busy:.0%} of the time."
        )
    terms = list(found["terms"].items())[:2]
    if terms:
        said += " Busy time goes to " + " and ".join(f"{name} ({share:.0%})" for name, share in terms) + "."
    return said
