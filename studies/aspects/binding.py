"""What binds a run: idle time, a queue and its cause, and the cost terms that busy time goes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calibration.features import steps_to_shapes
from serving.config import EngineConfig
from serving.metrics import latencies
from serving.plan import StepShape
from serving.records import Records
from serving.request import Cause, Status
from sim.cost import CostModel
from sim.drafting import Drafting
from sim.host_link import HostLink
from studies.aspects import extrapolation
from studies.reports.tables import milliseconds

SAMPLES = 240  # steps whose terms are evaluated, at equal distances of busy time: shares to about one percent
FULL = 0.95  # share of KV blocks from which memory counts as full
NOTICED = 0.1  # share of TTFT from which queue time is spoken of
QUEUE = 0.2  # share of busy time with somebody waiting from which a run counts as queueing

LIMITS = {"kv": "KV memory", "sequences": "max_num_seqs", "tokens": "token budget", "other": "batching"}
"""What somebody in the queue waits for, by cause, in few words."""


def sampled_shapes(records: Records) -> list[StepShape]:
    """Shapes of `SAMPLES` steps at equal distances of busy time; empty without any."""
    steps = records.steps
    ends = np.cumsum(steps["end_ns"] - steps["start_ns"])
    if not len(ends) or not ends[-1]:
        return []
    at = (np.arange(SAMPLES) + 0.5) / SAMPLES * ends[-1]
    rows = np.searchsorted(ends, at)
    return steps_to_shapes({name: column[rows] for name, column in steps.items()})


def cost_shares(
    shapes: Sequence[StepShape], cost: CostModel, drafting: Drafting | None = None, off_above: int = 0
) -> dict[str, float]:
    """Mean share of each cost term in the steps of these shapes, largest first.

    drafting: what proposing drafts costs beside `cost`, but for steps in which more than `off_above` requests (if not 0) sample.
    """
    shares: dict[str, float] = {}
    for shape in shapes:
        terms = cost.terms(shape)
        if drafting is not None and not 0 < off_above < shape.sampled - shape.draft_tokens:
            terms = terms | {"drafting": float(drafting.ns(shape))}
        total = sum(terms.values()) or 1.0
        for name, ns in terms.items():
            shares[name] = shares.get(name, 0.0) + ns / total / len(shapes)
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _with_copies(shares: dict[str, float], records: Records, link: HostLink | None) -> dict[str, float]:
    """The same shares beside that of copies of KV to the host and back."""
    steps = records.steps
    copied = 0 if link is None else int(link.of_steps(steps).sum())
    if not copied:
        return shares
    share = copied / float((steps["end_ns"] - steps["start_ns"]).sum())
    found = {name: part * (1.0 - share) for name, part in shares.items()} | {"copies to and from the host": share}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def extrapolated(shapes: Sequence[StepShape], cost: CostModel) -> tuple[float, str | None]:
    """Share of these shapes outside the cost model's measured domain, and the reason most often given."""
    reasons = Counter(reason for shape in shapes if (reason := cost.extrapolation(shape)) is not None)
    if not reasons:
        return 0.0, None
    return reasons.total() / len(shapes), reasons.most_common(1)[0][0]


def binding(
    records: Records,
    engine: EngineConfig,
    cost: CostModel | None,
    duration: float | None,
    drafting: Drafting | None = None,
    link: HostLink | None = None,
) -> dict[str, Any]:
    """What binds, JSON-able. link: to the host, where KV is copied there and back.

    busy: share of the run in which an engine computed. batch: requests that run at once, mean of busy time.
    waiting: share of busy time with somebody in the queue. cause: `kv`, `sequences`, `tokens`, or `other`, of the steps
    with a queue; None without one. extrapolated: share of busy time outside what was measured, `outside`: where and by how much
    (`studies.aspects.extrapolation`), and `extrapolation`: the same in words. queue_p90, ttft_p90: seconds, None without a scheduled request. terms: `cost_shares` of
    busy time. sentence: the same in words, rejected requests first.
    """
    steps = records.steps
    taken = (steps["end_ns"] - steps["start_ns"]).astype(np.float64)
    total = float(taken.sum())
    out: dict[str, Any] = {"busy": None, "waiting": None, "cause": None, "terms": {}, "extrapolated": 0.0}
    out["rejected"] = int((records.requests["status"] == Status.REJECTED).sum())
    if not duration or not total:
        out["sentence"] = _rejected(records, out["rejected"]) + "Nothing ran, so nothing binds."
        return out
    replicas = len(np.unique(steps["replica"]))
    out["busy"] = min(1.0, total / (duration * 1e9 * replicas))
    queue = steps["waiting"] > 0
    out["waiting"] = float(taken[queue].sum()) / total
    out["batch"] = float((taken * steps["running"]).sum()) / total
    if out["waiting"] >= QUEUE:
        out["cause"] = cause_of(steps, taken * queue, engine)
    if cost is not None:
        shapes = sampled_shapes(records)
        out["terms"] = _with_copies(cost_shares(shapes, cost, drafting, engine.speculation_off_above), records, link)
        out["extrapolated"], out["extrapolation"] = extrapolated(shapes, cost)
        out["outside"] = extrapolation.extrapolation(records, cost)
        if out["outside"] is not None:
            out["extrapolated"], out["extrapolation"] = out["outside"]["time"], extrapolation.sentence(out["outside"])
    seconds = latencies(records)
    for name in ("queue", "ttft"):
        out[f"{name}_p90"] = float(np.percentile(seconds[name], 90)) if len(seconds[name]) else None
    out["sentence"] = _rejected(records, out["rejected"]) + _sentence(out, engine)
    return out


def _rejected(records: Records, count: int) -> str:
    """What comes before all else: a run that turned requests away is not as good as the figures of the others."""
    if not count:
        return ""
    return f"{count:,} of {len(records.requests['status']):,} requests are rejected: {why_rejected(records)}. "


def why_rejected(records: Records) -> str:
    """Whether rejected requests were too large, or turned away where the scenario declares limits or a ladder."""
    r = records.requests
    rejected = r["status"] == Status.REJECTED
    turned_away = int((rejected & (r["cause"] > Cause.NEVER_FITS)).sum())
    too_large = int(rejected.sum()) - turned_away
    if not turned_away:
        return "no empty engine could hold them"
    limits = "turned away by declared limits or the degradation ladder"
    return limits if not too_large else f"{turned_away:,} {limits}, {too_large:,} that no empty engine could hold"


def cause_of(steps: Mapping[str, Any], weight: Any, engine: EngineConfig) -> str:
    """Which limit was met for most of the weight, `(steps,)`, of steps in which somebody waited: `kv`, `sequences`, `tokens`, or
    `other`."""
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
        queue, ttft = found["queue_p90"], found["ttft_p90"]
        delayed = bool(queue and ttft and queue > NOTICED * ttft)
        step = "the wait for the running step to end"
        if waiting >= 0.005:
            some, step = f"Somebody is still in the queue in only {waiting:.0%} of the busy time", f"that and {step}"
        else:
            some = "Every request enters the next step" if delayed else "Nobody waits"
        if delayed:
            some += f"; queue time (p90 {milliseconds(queue * 1e3)} of {milliseconds(ttft * 1e3)} TTFT) is {step}"
        said = (
            f"{some}, so latency is step time: {found['batch']:.1f} requests run at once on average, "
            f"and engines are busy {busy:.0%} of the time."
        )
    terms = list(found["terms"].items())[:2]
    if terms:
        said += " Busy time goes to " + " and ".join(f"{name} ({share:.0%})" for name, share in terms) + "."
    return said
