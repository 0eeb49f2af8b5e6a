"""What a search for the cheapest configuration found: in a sentence, in tables, as JSON and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.objectives import parse_objective
from studies.capacity.attainment import Attainment, beyond
from studies.capacity.cheapest import PER_HOUR, Cheapest, Judged, pareto
from studies.capacity.cheapest_figure import figure, tail, tail_label, unit
from studies.reports import files, html, tables, written
from studies.reports.strict_json import dumps
from studies.reports.tables import Table, number, percent
from studies.sweeps.axes import short_names

SHOWN = 15
"""Rows of a table on the terminal."""
_ORDER = ("met", "not confirmed", "not decided", "not met", "dearer", "refused")
_SAID = {"dearer": "not run: dearer"}


def to_dict(found: Cheapest) -> dict[str, Any]:
    """All of it, JSON-able. configurations: by place in the space, with outcome, price, objectives and what binds."""
    key = tail(found)
    dearer = found.dearer()
    return {
        "scenario": found.space.scenario.name,
        "space": found.space.size,
        "method": found.method,
        "trials": found.trials,
        "objectives": [str(objective) for objective in found.objectives],
        "confidence": found.confidence,
        "by": found.by,
        "best": None if found.best is None else _configuration(found.best, found),
        "runner_up": None if found.runner_up is None else _configuration(found.runner_up, found),
        "dearer": None if dearer is None else dearer.to_dict(),
        "pareto": {"latency": key, "configurations": [j.candidate.point.index for j in pareto(found.judged, key)]},
        "counts": {outcome.replace(" ", "_"): len(found.of(outcome)) for outcome in _ORDER},
        "runs": found.runs,
        "configurations": [_configuration(j, found) for j in found.judged],
    }


def _configuration(judged: Judged, found: Cheapest) -> dict[str, Any]:
    candidate = judged.candidate
    about: dict[str, Any] = {
        "index": candidate.point.index,
        "values": dict(candidate.point.values),
        "outcome": judged.outcome,
        PER_HOUR: candidate.usd_per_hour,
    }
    if judged.why:
        about["why"] = judged.why
    if judged.attainment is not None:
        about |= {
            "cost": judged.cost(found.confidence).to_dict(),
            "of_limit": judged.headroom if judged.headroom < float("inf") else None,
            **judged.attainment.to_dict(),
        }
    if judged.confirmed is not None:
        about["confirmed"] = judged.confirmed.to_dict()
    return about


def sentences(found: Cheapest) -> list[str]:
    """The answer, the runner-up, and what was not decided."""
    best, other = found.best, found.runner_up
    asked = tables.joined([str(objective) for objective in found.objectives])
    if best is None:
        said = [f"No configuration of {len(found.judged):,} is known to keep {asked}."]
        close = [j for j in found.judged if j.attainment is not None and j.headroom < float("inf")]
        if close:
            first = min(close, key=lambda j: (j.headroom, j.candidate.point.index))
            assert first.attainment is not None
            why = f": {first.attainment.why}" if first.attainment.why else ""
            said.append(f"Nearest: {first.candidate.name}, {first.outcome}{why}; {nearest(first.attainment)}.")
        return said + _open(found)
    attained = best.attainment
    assert attained is not None
    again = "and other seeds would change nothing"
    if best.confirmed is not None:
        again = f"and did again with {len(best.confirmed.seeds)} fresh seeds"
    said = [
        f"Cheapest: {best.candidate.name}, {_money(best, found)}. It keeps {asked} at {found.confidence:.0%} confidence, "
        f"{again}; {nearest(attained)}.",
        f"What binds it: {attained.binding.sentence or attained.binding.resource}",
    ]
    if other is not None:
        said.append(f"Runner-up: {other.candidate.name}, {_money(other, found)}: {_compared(found, other)}.")
    return said + _open(found)


def _compared(found: Cheapest, other: Judged) -> str:
    difference = found.dearer()
    assert other.attainment is not None
    worst = nearest(other.attainment)
    if difference is None or difference.relative.estimate is None:
        return worst
    if difference.relative.estimate == 0:
        return f"as cheap; {worst}"
    if difference.seen is False:
        return f"not distinguishable in cost ({difference}); {worst}"
    return f"{difference} in cost; {worst}"


def _open(found: Cheapest) -> list[str]:
    """What may still be cheaper, but was not decided."""
    best = found.best
    cheaper = [
        j for j in found.judged if j.outcome in ("not decided", "not confirmed") and (best is None or j.usd < best.usd)
    ]
    if not cheaper:
        return []
    names = tables.few([f"{j.candidate.name} ({_why(j)})" for j in cheaper], 3, "; ")
    return [f"Cheaper, but not known to keep them: {names}."]


def _why(judged: Judged) -> str:
    looked = judged.confirmed if judged.outcome == "not confirmed" else judged.attainment
    why = looked.why if looked is not None and looked.why else judged.outcome
    return f"with fresh seeds: {why}" if judged.outcome == "not confirmed" else why


def _money(judged: Judged, found: Cheapest) -> str:
    hour = f"{number(judged.candidate.usd_per_hour)} USD an hour"
    return hour if found.by == PER_HOUR else f"{number(judged.usd)} {unit(found)} ({hour})"


def _sorted(found: Cheapest) -> list[Judged]:
    """The best first; of those that do not do, the nearest to their limits."""

    def place(judged: Judged) -> tuple[object, ...]:
        order = _ORDER.index(judged.outcome)
        return (order, judged.headroom, judged.rank) if judged.outcome == "not met" else (order, 0.0, judged.rank)

    return sorted(found.judged, key=place)


def of_limit(share: float) -> str:
    """A figure as a share of its limit: `72 %`, `64 times`; a dash where there is none."""
    if share == float("inf"):
        return tables.DASH
    return percent(share) if share < 10 else f"{number(share)} times"


def found_tables(found: Cheapest, shown: int | None = SHOWN) -> list[Table]:
    """A row a configuration that was run or is dearer, the best first; then those that cannot be. shown: rows of each, None: all."""
    key, by_hour = tail(found), found.by == PER_HOUR
    front = {j.candidate.point.index for j in pareto(found.judged, key)}
    head = [
        ", ".join(short_names(found.space.study.axis_names).values()),
        "USD an hour",
        *([] if by_hour else [unit(found)]),
        "of its limit",
        tail_label(found),
        "outcome",
    ]
    rows = []
    listed = [j for j in _sorted(found) if j.outcome != "refused"]
    for j in listed[:shown]:
        star = " *" if j.candidate.point.index in front else ""
        rows.append(
            (
                f"{values(j)}{star}",
                number(j.candidate.usd_per_hour),
                *([] if by_hour else [number(None if j.usd == float("inf") else j.usd)]),
                of_limit(j.headroom),
                written.plus_minus(j.interval(key, found.confidence)),
                _SAID.get(j.outcome, j.outcome),
            )
        )
    note = f"of its limit: the worst objective. *: no other that was run beats it in both cost and {tail_label(found)}."
    if len(listed) > len(rows):
        note += f" {len(listed) - len(rows)} more."
    found_ = [Table("Configurations", tuple(head), rows, note)]
    refused = found.of("refused")
    if refused:
        found_.append(
            Table(
                "Refused", ("why",), [(f"{j.candidate.name}: {j.why}",) for j in refused[:shown]], _left(refused, shown)
            )
        )
    return found_


def nearest(attained: Attainment) -> str:
    """The objective that is nearest to its limit: `tpot_p95 is nearest to its limit, at 83 % of it`."""
    name = max(attained.intervals, key=lambda text: beyond(attained.intervals[text], parse_objective(text)))
    return f"{name.split()[0]} is nearest to its limit, at {of_limit(attained.worst)} of it"


def values(judged: Judged) -> str:
    """The values of a configuration, in the order of the axes."""
    return ", ".join(str(value) for value in judged.candidate.point.values.values())


def _left(refused: list[Judged], shown: int | None) -> str:
    return f"{len(refused) - shown} more" if shown is not None and len(refused) > shown else ""


def page(found: Cheapest) -> html.Page:
    best = found.best
    cards = [] if best is None else [
        (number(best.candidate.usd_per_hour), "USD an hour"),
        (of_limit(best.headroom), "of the limit, the worst objective"),
        (f"{found.runs:,}", "simulations"),
    ]  # fmt: skip
    run = sum(judged.attainment is not None for judged in found.judged)
    how = "chosen by Optuna" if found.method == "optuna" else "the others cost more or cannot be"
    lead = f"{found.space.scenario.name}: {found.space.size:,} configurations, {run:,} of them run ({how})."
    if run == found.space.size:
        lead = f"{found.space.scenario.name}: {run:,} configurations, all run."
    section = html.Section(
        "",
        "\n".join(sentences(found)),
        cards,
        found_tables(found, None)[:1],
        [("Cost against latency", figure(found), True)],
    )
    refused = "\n".join(f"{j.candidate.name}\n    {j.why}" for j in found.of("refused"))
    folded = [(f"Refused: {len(found.of('refused'))}", refused), ("Scenario", found.space.scenario.to_yaml())]
    if best is not None and best.candidate.scenario is not None:
        folded.append((f"Scenario of the cheapest: {best.candidate.name}", best.candidate.scenario.to_yaml()))
    return html.Page("The cheapest configuration", lead, [section], folded)


def write(found: Cheapest, folder: Path) -> Path:
    """Writes cheapest.html and cheapest.json into a folder; other files in it stay. The page's path."""
    files.write(folder, {"cheapest.json": dumps(to_dict(found)) + "\n", "cheapest.html": html.render(page(found))})
    return folder / "cheapest.html"
