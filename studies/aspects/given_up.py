"""What a run gave up under load: by design (limits and a ladder that the scenario declares) and by accident (what nobody declared)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.schema import Scenario
from scenarios.workload import Workload
from serving.metrics import meets
from serving.records import Records
from serving.request import Cause
from serving.tries import answered
from studies.reports.tables import Table, number, percent
from studies.results import Run

_BY_DESIGN = {
    Cause.QUEUE_REQUESTS: "refused: queue full of requests",
    Cause.QUEUE_TOKENS: "refused: queue full of tokens",
    Cause.RATE_LIMIT: "refused: token bucket",
    Cause.TENANT_BUDGET: "refused: tenant's budget",
    Cause.SHED: "shed by class",
    Cause.LADDER: "refused: last rung",
}
_BY_ACCIDENT = {
    Cause.QUEUE_TIMEOUT: "timed out in the queue",
    Cause.CLIENT_TIMEOUT: "client left",
}
_CLASSES_SHOWN = 4


def described(scenario: Scenario, workload: Workload, records: Records) -> dict[str, Any]:
    """Every kind of loss with how often it happened, to which class, and the tokens that it saved; and the rungs. JSON-able; `losses`
    and `rungs` are empty where nothing was lost and there is no ladder."""
    r, row = records.requests, np.arange(len(records.requests["status"])) % len(workload)
    wanted = np.minimum(workload.output_tokens, workload.max_tokens)[row]
    prompt = workload.prompt_tokens[row]
    losses: list[dict[str, Any]] = []

    def lost(what: str, design: bool, which: NDArray[np.bool_], saved: NDArray[np.int64] | None) -> None:
        if which.any():
            tokens = None if saved is None else int(saved[which].sum())
            losses.append(
                {"what": what, "by_design": design, "requests": int(which.sum()), "tokens_saved": tokens}
                | {"by_class": _by_class(which, records)}
            )

    for cause, what in _BY_DESIGN.items():
        lost(what, True, r["cause"] == cause, prompt + wanted)
    finished = records.finished
    capped = finished & (r["rung"] > 0) & (r["output_tokens"] < wanted)
    lost("answer capped", True, capped, wanted - r["output_tokens"])
    dropped = finished & (r["rung"] > 0) & (r["prompt_tokens"] < prompt)
    lost("turns dropped", True, dropped, prompt - r["prompt_tokens"])
    for cause, what in _BY_ACCIDENT.items():
        which = r["cause"] == cause
        lost(what, False, which, wanted - np.maximum(r["output_tokens"], 0))
    lost("preempted", False, r["preemptions"] > 0, None)
    limited = [scenario.slo.ttft, scenario.slo.tpot, scenario.slo.e2e, *(slo for slo in records.class_slo if slo)]
    if any(limit is not None for limit in limited):
        late = answered(records) & ~meets(records, scenario.slo)
        lost("answered beyond the SLO", False, late, None)
    return {"losses": losses, "rungs": _rungs(scenario, records)}


def _by_class(which: NDArray[np.bool_], records: Records) -> dict[str, int]:
    """How many of each class; nothing where there is only one."""
    if records.service_class is None or len(records.classes) < 2:
        return {}
    counts = np.bincount(records.service_class[which], minlength=len(records.classes))
    return dict(zip(records.classes, counts.tolist(), strict=True))


def _rungs(scenario: Scenario, records: Records) -> list[dict[str, Any]]:
    """Of each rung of the ladder: what it does, for how many seconds it was in force and when first, how often it was switched on, and
    how many requests came while it was."""
    if scenario.degradation is None:
        return []
    history: Sequence[tuple[int, int]] = records.info.get("ladder", [])  # type: ignore[assignment]
    ends = [0, *(int(x.max()) for x in (records.requests["finish_ns"], records.steps["end_ns"]) if len(x))]
    times = [at for at, _ in history] + [max(ends)]
    found = []
    for k, rung in enumerate(scenario.degradation.ladder, 1):
        seconds, began, before = 0.0, [], 0
        for (at, level), until in zip(history, times[1:], strict=True):
            if level >= k:
                seconds += max(until - at, 0) / 1e9
                if before < k:
                    began.append(at / 1e9)
            before = level
        value = getattr(rung, rung.does)
        found.append(
            {
                "rung": rung.does if value is True else f"{rung.does} {value}",
                "trigger": f"{rung.signal} >= {rung.on_at}",
                "seconds": seconds,
                "first_s": began[0] if began else None,
                "times": len(began),
                "requests": int((records.requests["rung"] >= k).sum()),
            }
        )
    return found


def tables_of(run: Run) -> list[Table]:
    """The ladder, and all that was lost."""
    found: Mapping[str, Any] = run.info.get("given_up") or {}
    tables = []
    if found.get("rungs"):
        rows = [
            (
                f"{k}. {rung['rung']}",
                rung["trigger"],
                number(rung["seconds"]),
                number(rung["first_s"]),
                number(rung["times"]),
                number(rung["requests"]),
            )
            for k, rung in enumerate(found["rungs"], 1)
        ]
        head = ("rung", "trigger", "in force (s)", "first at (s)", "times", "requests")
        tables.append(Table("Degradation ladder", head, rows, "Requests that came while the rung was in force."))
    if found.get("losses"):
        classes = list(found["losses"][0]["by_class"])
        classes = classes if len(classes) <= _CLASSES_SHOWN else []
        sent = max(int(run.records.submitted.sum()), 1)
        rows = []
        for loss in found["losses"]:
            rows.append(
                (
                    loss["what"],
                    "design" if loss["by_design"] else "accident",
                    number(loss["requests"]),
                    percent(loss["requests"] / sent),
                    *(number(loss["by_class"][name]) for name in classes),
                    number(loss["tokens_saved"]),
                )
            )
        tables.append(
            Table(
                "What was given up",
                ("", "by", "tries", "of all", *classes, "tokens saved"),
                rows,
                "By design: limits and a ladder that the scenario declares. By accident: what nobody declared. A request that is sent again "
                "counts each time. Saved: tokens that were not computed.",
            )
        )
    return tables
