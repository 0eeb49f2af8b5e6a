"""How far a prediction is from what was measured: schedule, step costs, outcome and ranking, each apart.

Agreement of an outcome can be two errors that cancel, so the layers are never mixed: the schedule is replayed with the
measured durations, and step costs are compared on the measured schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.features import steps_to_shapes
from sim.cost import CostModel

Verdict = Literal["pass", "fail", "void"]

TOLERANCE = 0.05
"""Largest relative error of an outcome that passes, unless repeats of the live run differ by more."""

VOID_NOISE = 0.10
"""Repeats that differ by more than this measure the machine and not the engine."""

HEADLINES = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "output_throughput", "request_throughput")
"""The metrics that decide; tails are reported beside them."""

TAILS = tuple(f"p{p}_{metric}_ms" for metric in ("ttft", "tpot", "e2el") for p in (50, 90, 95, 99))


class OutcomeRow(NamedTuple):
    """One metric. error: (simulated - live) / live, signed; live is the mean of the repeats. noise: largest relative
    difference of two repeats, None with a single one."""

    metric: str
    live: float
    simulated: float
    error: float
    noise: float | None
    verdict: Verdict


class Ranking(NamedTuple):
    """Kendall's tau over the pairs of variants that the live runs tell apart; None where there is no such pair."""

    kendall_tau: float | None
    pairs: int
    swapped: tuple[tuple[str, str], ...]


class Matched(NamedTuple):
    """The same requests in both runs. mape: mean of |simulated - live| / live. pearson_r: None where one does not vary."""

    requests: int
    mape: float
    pearson_r: float | None


class WorstStep(NamedTuple):
    """A step and how far off its predicted duration is, relative; shape as in the step log."""

    replica: int
    step: int
    kind: str
    prefill_sequences: int
    prefill_tokens: int
    decode_sequences: int
    decode_context: int
    measured_ns: int
    predicted_ns: int
    error: float
    extrapolates: str | None


class KindErrors(NamedTuple):
    """Relative errors of the durations of steps of one kind. total: of their sum, which is what drifts a clock."""

    steps: int
    signed_mean: float
    mape: float
    total: float
    share_of_time: float


class StepErrors(NamedTuple):
    """Step costs against a step log. by_kind: `all`, `decode`, `prefill`, `mixed`. extrapolated: steps outside the domain."""

    by_kind: dict[str, KindErrors]
    worst: tuple[WorstStep, ...]
    extrapolated: int


def noise(repeats: Sequence[float]) -> float | None:
    """Largest relative difference between two repeats, of their mean; None with fewer than two."""
    if len(repeats) < 2:
        return None
    low, high = min(repeats), max(repeats)
    return 0.0 if high == low else 2.0 * (high - low) / (abs(high) + abs(low))


def outcome(
    live: Sequence[Mapping[str, object]], simulated: Mapping[str, object], metrics: Sequence[str] = HEADLINES + TAILS
) -> list[OutcomeRow]:
    """A row for each metric that the simulation and every live repeat have as a number.

    Args:
        live: metrics of each repeat, by export key; None (too few samples) counts as absent.
        simulated: the same of the simulation.
    """
    rows = []
    for metric in metrics:
        measured = [_number(run.get(metric)) for run in live]
        predicted = _number(simulated.get(metric))
        known = [value for value in measured if value is not None]
        if predicted is None or not known or len(known) < len(measured):
            continue
        mean = sum(known) / len(known)
        error = (predicted - mean) / mean if mean else (0.0 if predicted == 0 else float("inf"))
        floor = noise(known)
        rows.append(OutcomeRow(metric, mean, predicted, error, floor, verdict(error, floor)))
    return rows


def verdict(error: float, noise: float | None) -> Verdict:
    """`void` where repeats differ by more than a tenth; else `pass` up to the larger of 5 % and the noise."""
    if noise is not None and noise > VOID_NOISE:
        return "void"
    return "pass" if abs(error) <= max(TOLERANCE, noise or 0.0) else "fail"


def overall(rows: Sequence[OutcomeRow], decisive: Sequence[str] = HEADLINES) -> Verdict:
    """`fail` if a decisive metric fails, else `void` if one is void or none is there, else `pass`."""
    found = [row.verdict for row in rows if row.metric in decisive]
    if "fail" in found:
        return "fail"
    return "void" if "void" in found or not found else "pass"


def matched(live: NDArray[np.float64], simulated: NDArray[np.float64]) -> Matched | None:
    """Compares one latency request by request, `(n,)` each, NaN where a request has none; None if nothing is left."""
    both = np.isfinite(live) & np.isfinite(simulated) & (live > 0)
    if not both.any():
        return None
    a, b = live[both], simulated[both]
    varies = len(a) > 1 and np.ptp(a) > 0 and np.ptp(b) > 0
    r = float(np.corrcoef(a, b)[0, 1]) if varies else None
    return Matched(len(a), float(np.mean(np.abs(b - a) / a)), r)


def ranking(live: Mapping[str, Sequence[float]], simulated: Mapping[str, float]) -> Ranking:
    """Whether variants come in the same order.

    A pair counts if its live means differ by more than the noise of either variant. Kendall's tau over those pairs:
    (same order - swapped) / pairs; a simulated tie is neither.

    Args:
        live: a metric (mean E2E, say) of each variant, by repeat. simulated: of each variant.
    """
    order, swapped = 0, []
    pairs = 0
    for a, b in combinations(live, 2):
        mean_a, mean_b = (sum(live[v]) / len(live[v]) for v in (a, b))
        floor = max(noise(live[a]) or 0.0, noise(live[b]) or 0.0)
        if (noise((mean_a, mean_b)) or 0.0) <= floor:
            continue
        pairs += 1
        agree = (mean_a - mean_b) * (simulated[a] - simulated[b])
        order += int(np.sign(agree))
        if agree < 0:
            swapped.append((a, b))
    return Ranking(order / pairs if pairs else None, pairs, tuple(swapped))


def step_errors(steps: Mapping[str, NDArray[np.int64]], cost: CostModel, worst: int = 10) -> StepErrors:
    """Predicted against measured durations of the steps of a log (`serving.records.STEP_COLUMNS`), worst first.

    Relative errors are (predicted - measured) / measured; steps without a measured duration are left out.
    """
    some = (steps["end_ns"] > steps["start_ns"]) & (steps["prefill_tokens"] + steps["decode_sequences"] > 0)
    log = {name: column[some] for name, column in steps.items()}
    shapes = steps_to_shapes(log)
    measured = log["end_ns"] - log["start_ns"]
    predicted = np.array([cost.step_ns(shape) for shape in shapes], dtype=np.int64)
    error = predicted / measured - 1.0
    prefill, decode = log["prefill_sequences"] > 0, log["decode_sequences"] > 0
    kinds = np.where(~prefill, "decode", np.where(decode, "mixed", "prefill"))
    by_kind = {}
    for kind in ("all", "decode", "prefill", "mixed"):
        rows = np.ones(len(kinds), dtype=bool) if kind == "all" else kinds == kind
        if rows.any():
            by_kind[kind] = KindErrors(
                int(rows.sum()),
                float(error[rows].mean()),
                float(np.abs(error[rows]).mean()),
                float(predicted[rows].sum() / measured[rows].sum() - 1.0),
                float(measured[rows].sum() / measured.sum()),
            )
    outside = [cost.extrapolation(shape) for shape in shapes]
    found = [
        WorstStep(
            replica=int(log["replica"][i]),
            step=int(log["step"][i]),
            kind=str(kinds[i]),
            prefill_sequences=int(log["prefill_sequences"][i]),
            prefill_tokens=int(log["prefill_tokens"][i]),
            decode_sequences=int(log["decode_sequences"][i]),
            decode_context=int(log["decode_context"][i]),
            measured_ns=int(measured[i]),
            predicted_ns=int(predicted[i]),
            error=float(error[i]),
            extrapolates=outside[i],
        )
        for i in np.argsort(-np.abs(error), kind="stable")[:worst].tolist()
    ]
    return StepErrors(by_kind, tuple(found), sum(text is not None for text in outside))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if np.isfinite(value) else None
