"""How good the answers of a run are expected to be, and what it took to judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scenarios.errors import InputError
from scenarios.quality_curve import quality_at
from scenarios.routers import Cascade
from scenarios.schema import Scenario
from scenarios.workload import Workload
from serving.metrics import put
from serving.records import Records
from serving.tries import answered
from sim.escalation import Curve, Escalation, Judge, draw_verdicts


def escalation_of(scenario: Scenario, workload: Workload) -> Escalation | None:
    """What a judge will say of answers; None where nobody judges.

    Raises:
        InputError: the router goes by the difficulty of requests, and they have none.
    """
    if not isinstance(scenario.router, Cascade):
        return None
    if workload.difficulty is None and (scenario.router.thresholds or not _flat(scenario)):
        raise InputError(
            "router.cascade: goes by the difficulty of requests, and they have none; give workload.difficulty (0.3, or "
            "{distribution: hard_tail, share: 0.2}), or that of each of workload.classes"
        )
    judge = judge_of(scenario)
    if judge is None:
        return None
    names = [pool.name for pool in scenario.pools]
    return draw_verdicts(judge, curves_of(scenario), names, difficulty_of(workload), scenario.seed)


def recorded(info: Mapping[str, Any], workload: Workload) -> Escalation | None:
    """The same of a run, from what it says of itself."""
    if info.get("judge") is None:
        return None
    judge = Judge(**info["judge"])
    pools = info["pools"]
    curves, names = [pool["curve"] for pool in pools], [pool["name"] for pool in pools]
    return draw_verdicts(judge, curves, names, difficulty_of(workload), info["seed"])


def judge_of(scenario: Scenario) -> Judge | None:
    """The judge of the scenario's cascade."""
    given = scenario.router.judge if isinstance(scenario.router, Cascade) else None
    return None if given is None else Judge(round(given.latency * 1e9), given.recall, given.false_positive_rate)


def curves_of(scenario: Scenario) -> list[Curve | None]:
    """Quality over difficulty of each pool, None where nobody knows it."""
    return [None if pool.quality is None else pool.quality.curve for pool in scenario.pools]


def difficulty_of(workload: Workload) -> Any:
    """`(n,)`; 0 of all where they have none."""
    return np.zeros(len(workload)) if workload.difficulty is None else workload.difficulty


def _flat(scenario: Scenario) -> bool:
    """Whether answers are as good whatever is asked."""
    return all(curve is None or len({quality for _, quality in curve}) == 1 for curve in curves_of(scenario))


def count(
    figures: dict[str, Any], scenario: Scenario, workload: Workload, records: Records, pools: Sequence[dict[str, Any]]
) -> None:
    """Adds to the figures of a run, and of its pools, how good answers are expected to be.

    expected_quality: the mean chance that an answer is right, over requests that have one; of an answer that a judge let pass, the
    chance behind that verdict. escalated: requests that were sent on. judged: answers that a judge read, usd_judging: for how much.
    """
    curves, difficulty = curves_of(scenario), difficulty_of(workload)
    rows = np.flatnonzero(answered(records))
    first = np.cumsum([0, *(pool["replicas"] for pool in pools)])
    home = np.searchsorted(first, records.requests["replica"][rows], side="right") - 1
    chance = np.full(len(rows), np.nan)
    judge, judged = judge_of(scenario), records.judged_ns
    for number, (curve, pool) in enumerate(zip(curves, pools, strict=True)):
        mine = home == number
        pool["answers"] = int(mine.sum())
        if curve is not None:
            known = quality_at(curve, difficulty[rows[mine] % len(workload)])
            if judge is not None and judged is not None:
                known = np.where(judged[rows[mine]] >= 0, judge.trusted(known), known)
            chance[mine] = known
        pool["expected_quality"] = float(chance[mine].mean()) if curve is not None and mine.any() else None
    unknown = [pool["name"] for pool, curve in zip(pools, curves, strict=True) if curve is None]
    why = f"pool {unknown[0]} has no quality" if unknown else "no request finished"
    value = float(chance.mean()) if len(rows) and not np.isnan(chance).any() else None
    if value is not None and workload.difficulty is None and not _flat(scenario):
        value, why = None, "requests have no difficulty"
    put(figures, figures["refused"], "expected_quality", value, why)
    if judged is not None:
        read = judged >= 0
        n = len(workload)
        sent_on = read[:-n] & records.submitted[n:] if len(read) > n else np.zeros(0, dtype=bool)
        figures["judged"] = int(read.sum())
        figures["escalated"] = int(sent_on.sum())
        assert isinstance(scenario.router, Cascade)
        assert scenario.router.judge is not None
        figures["usd_judging"] = figures["judged"] * scenario.router.judge.usd
