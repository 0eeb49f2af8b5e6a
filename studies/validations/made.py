"""Records of validations that were just made: of executions here, of runs of a real engine, of measured points."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from calibration import validate as judged
from serving.metrics import by_request
from studies.reports import tables
from studies.validations.record import Pair, Points, Ranking, Row, Validation, Variant, Worst, farthest, points_of

if TYPE_CHECKING:
    from calibration.measured.run import MeasuredRun
    from studies.measured.validation import Measured
    from studies.silicon.report import SiliconReport
    from studies.validation import ValidationReport

METRICS: tuple[Literal["ttft", "tpot", "e2el"], ...] = ("ttft", "tpot", "e2el")


def of_report(found: ValidationReport, name: str = "") -> Validation:
    """Of a scenario executed here (`studies.validate`)."""
    live, simulated = found.executed[0], found.predicted
    points = [
        points_of(
            metric, "", "request", _pairs(by_request(live.records, metric), by_request(simulated.records, metric))
        )
        for metric in METRICS
    ]
    info = live.info
    stored = found.to_dict()
    absent = (
        {} if found.ranking else {"ranking": "Policies were not ranked; ask for the ranking to execute each of them."}
    )
    return _of_stored(
        stored,
        name=name or simulated.name,
        title=f"{simulated.name}: simulated against executed",
        about=(
            f"Executed {found.repeats.replace('repeats', 'times')} on {info['device']} (every step really computed) and simulated with "
            "the profile's step costs."
        ),
        measured=f"{info['device']}, {info['clock']} clock",
        sentence=found.sentence,
        points=[one for one in points if one is not None],
        absent=absent,
    )


def of_stored(stored: Mapping[str, Any], **about: Any) -> Validation:
    """Of the `validation.json` that `servetwin validate SCENARIO --out DIR` writes. about: name, title, about, measured.

    Raises:
        KeyError, TypeError, ValueError: it is not such a file.
    """
    absent = {
        "points": "The stored validation holds no single requests. One that is run now shows them.",
        "ranking": "Policies were not ranked in this validation.",
    }
    schedule = stored["schedule"]
    same = "is identical" if schedule["identical"] else "DIFFERS"
    sentence = f"The replayed schedule {same} over {schedule['steps']:,} steps of {stored['repeats']} repeats."
    return _of_stored(stored, sentence=sentence, points=(), absent=absent, **about)


def _of_stored(
    stored: Mapping[str, Any],
    *,
    name: str,
    title: str,
    about: str,
    measured: str,
    sentence: str,
    points: Sequence[Points],
    absent: Mapping[str, str],
) -> Validation:
    schedule, costs, ranked = stored["schedule"], stored["cost"]["by_kind"], stored["ranking"]
    facts = [
        ("replayed schedule", "identical" if schedule["identical"] else schedule["first_difference"] or "different")
    ]
    facts += [("steps", f"{schedule['steps']:,}"), ("executions", str(stored["repeats"]))]
    facts += [
        (
            f"step costs, {kind}",
            f"{tables.percent(e['total'], signed=True)} of their sum, MAPE {tables.percent(e['mape'])}",
        )
        for kind, e in costs.items()
    ]
    facts += [
        (f"{what} request by request", f"MAPE {tables.percent(m['mape'])}, r {tables.number(m['pearson_r'])}")
        for what, m in stored["matched"].items()
    ]
    outcome = [judged.OutcomeRow(**row) for row in stored["outcome"]]
    rows = [_row(row) for row in outcome if math.isfinite(row.error)]  # of nothing measured there is no relative error
    return Validation(
        name=name,
        title=title,
        kind="own engine",
        about=about,
        measured=measured,
        verdict=stored["verdict"],
        sentence=sentence,
        facts=tuple(facts),
        headlines=judged.HEADLINES,
        rows=tuple(rows),
        points=tuple(points),
        ranking=None if ranked is None or not ranked["variants"] else _ranking(ranked),
        worst=_worst(rows, "this run"),
        not_modelled=tuple(stored["not_modelled"]),
        absent={key: why for key, why in absent.items() if key != "ranking" or ranked is None},
    )


def _ranking(ranked: Mapping[str, Any]) -> Ranking:
    variants = [
        Variant(name=name, measured=tuple(found["live"]), predicted=found["simulated"])
        for name, found in ranked["variants"].items()
    ]
    return Ranking(by=ranked["by"], kendall_tau=ranked["kendall_tau"], pairs=ranked["pairs"], variants=tuple(variants))


def of_measured(found: Measured, *, name: str, title: str, about: str) -> Validation:
    """Of runs of a real engine."""
    from studies.measured import report

    rows = [_row(row, load.name) for load in found.loads for row in load.rows]
    points = []
    for load in found.loads:
        for metric in METRICS:
            column = metric.removesuffix("l")
            pairs = [pair for run in load.runs if run.name in load.simulated for pair in _both(run, load, column)]
            if (one := points_of(metric, load.name, "request", pairs)) is not None:
                points.append(one)
    matched = [
        (f"{what} request by request, {load.name}", f"MAPE {tables.percent(m.mape)}, r {tables.number(m.pearson_r)}")
        for load in found.loads
        for what, m in load.matched.items()
    ]
    rests_on = [(row[0], row[1]) for row in report.basis_table(found).rows]
    engine = found.engine.scenario
    stated = next(iter(found.found.runs.values())).stated
    return Validation(
        name=name,
        title=title,
        kind="real engine",
        about=about,
        measured=", ".join([f"{engine.model.name} on {engine.hardware.name}", *stated.values()]),
        verdict=report.verdict(found),
        sentence=report.sentence(found),
        facts=(*matched, *rests_on),
        headlines=report.DECISIVE,
        rows=tuple(rows),
        points=tuple(points),
        worst=_worst(rows, title),
        not_modelled=tuple(found.not_modelled),
        absent={"ranking": "One policy was measured, so there is no order to compare."},
    )


def _both(run: MeasuredRun, load: Any, column: str) -> list[Pair]:
    simulated = np.mean([getattr(draw, column) for draw in load.simulated[run.name]], axis=0)
    return _pairs(getattr(run, column), simulated)


def of_silicon(found: SiliconReport, *, name: str, title: str, about: str) -> Validation:
    """Of measured points of data-centre GPUs: held-out ones, none that is excluded by name; rows are means over an engine's points."""
    from calibration.silicon.scope import exclusion_of

    groups: dict[str, list[int]] = defaultdict(list)
    predictions = found.predictions["fitted"]
    for i, point in enumerate(found.points):
        if point.half == "held-out" and exclusion_of(point) is None and predictions[i].ttft is not None:
            groups[ENGINES.get(point.engine, point.engine)].append(i)
    noise = found.noise
    floor = {} if noise is None else {"ttft": noise.ttft_median, "tpot": noise.tpot_median}
    rows, points = [], []
    for group, members in sorted(groups.items()):
        for metric in METRICS[:2]:
            pairs = [Pair(getattr(found.points[i], metric), getattr(predictions[i], metric) or 0.0) for i in members]
            one = points_of(metric, group, "measured point", pairs)
            if one is None:
                continue
            points.append(one)
            errors = np.array(one.predicted) / np.array(one.measured) - 1
            rows.append(
                Row(
                    metric=f"mean_{metric}_ms", of=group, error=float(errors.mean()), noise=floor.get(metric),
                    size=float(np.abs(errors).mean()), points=len(errors),
                )
            )  # fmt: skip
    facts = [
        (
            f"target: {t['name']}",
            f"TTFT {tables.percent(t['reached']['mape_ttft'])} of {t['ttft'] * 100:.0f} %, TPOT {tables.percent(t['reached']['mape_tpot'])} "
            f"of {t['tpot'] * 100:.0f} %, {t['reached']['n']} points: {'met' if t['met'] else 'missed'}",
        )
        for t in found.targets()
    ]
    worst = [
        Worst(
            where=w["point"], figure=what.upper(), error=w[f"error_{what}"], noise=getattr(noise, f"{what}_p90", None)
        )
        for w in found.worst(20)
        for what in ("ttft", "tpot")
    ]
    return Validation(
        name=name,
        title=title,
        kind="points",
        about=about,
        measured="H100, H200 and Blackwell, by others; the points of aiconfigurator-core",
        verdict=found.verdict,
        sentence=found.sentence,
        facts=tuple(facts),
        rows=tuple(rows),
        points=tuple(points),
        noise=floor,
        worst=farthest(worst),
        absent={"ranking": "Points were measured under one policy each, so there is no order to compare."},
    )


ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def _pairs(measured: Iterable[float], predicted: Iterable[float]) -> list[Pair]:
    return [Pair(float(a), float(b)) for a, b in zip(measured, predicted, strict=True)]


def _row(row: judged.OutcomeRow, of: str = "") -> Row:
    return Row(
        metric=row.metric, of=of, measured=row.live, predicted=row.simulated, error=row.error, noise=row.noise,
        verdict=row.verdict,
    )  # fmt: skip


def _worst(rows: Sequence[Row], where: str) -> tuple[Worst, ...]:
    return farthest(
        [
            Worst(where=row.of or where, figure=tables.label(row.metric), error=row.error, noise=row.noise)
            for row in rows
        ]
    )
