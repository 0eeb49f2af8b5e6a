"""The fewest replicas, or the least of a whole number: in a sentence, in a table, as JSON and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.objectives import Objective
from studies import figures
from studies.capacity.attainment import Binding
from studies.capacity.cheapest_report import nearest, of_limit
from studies.capacity.replicas import Fewest
from studies.figures import style
from studies.figures.alt_text import course
from studies.reports import files, html, tables, written
from studies.reports.strict_json import dumps
from studies.reports.tables import Table, number

_VERDICTS = {True: "yes", False: "no", None: "open"}


def to_dict(found: Fewest) -> dict[str, Any]:
    """All of it, JSON-able. tried: by value, with its price an hour, objectives and what binds."""
    binding = bound_by(found)
    return {
        "scenario": found.scenario.name,
        "path": found.path,
        "objectives": [str(objective) for objective in found.objectives],
        "confidence": found.confidence,
        "value": found.value,
        "interval": None if found.interval is None else list(found.interval),
        "usd_per_hour": None if found.value is None else found.usd[found.value],
        "binding": None if binding is None else binding.to_dict(),
        "why": found.why,
        "broken_above": found.broken_above,
        "runs": sum(tried.runs for tried in found.tried.values()),
        "tried": {
            str(value): {"usd_per_hour": found.usd[value], "of_limit": _finite(tried.worst), **tried.to_dict()}
            for value, tried in sorted(found.tried.items())
        },
        "refused": {str(value): why for value, why in sorted(found.refused.items())},
    }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def bound_by(found: Fewest) -> Binding | None:
    """What the value below the answer is short of; of the answer itself where none is known to be too few."""
    if found.value is None:
        return None
    few = found.too_few
    return found.tried[found.value if few is None else few].binding


def sentences(found: Fewest) -> list[str]:
    """The answer, its neighbours, what an hour costs, and what binds."""
    asked = tables.joined([str(objective) for objective in found.objectives])
    name = found.path.rpartition(".")[2]
    if found.value is None or found.interval is None:
        return [f"No {name} that was tried keeps {asked}: {found.why}."]
    low, value = found.interval
    tried = found.tried[value]
    said = [f"Fewest {name}: {value}. It keeps {asked} at {found.confidence:.0%} confidence; {nearest(tried)}."]
    if low < value:
        between = [k for k in found.tried if low <= k < value]
        reason = found.tried[max(between)].why if between else ""
        said.append(f"It may be {low}{' or ' if value - low == 2 else ' to '}{value - 1} already: {reason}." if value - low > 1 else f"It may be {low} already: {reason}.")  # fmt: skip
    if (few := found.too_few) is not None:
        binding = found.tried[few].binding
        said.append(
            f"{name} {few} is too few: {found.tried[few].why}. It is short of {binding.resource}. {binding.sentence}"
        )
    elif low > 1 and low - 1 in found.refused:
        said.append(f"{name} {low - 1} cannot be: {found.refused[low - 1]}")
    if found.broken_above:
        above = ", ".join(map(str, found.broken_above))
        said.append(f"Note: with {name} {above} the objectives are broken again, so more is not always better here.")
    if found.usd[value]:
        said.append(f"It costs {number(found.usd[value])} USD an hour.")
    return said


def usd_per_million(found: Fewest) -> float | None:
    """USD for a million tokens of answers with the fewest; None where nothing has a price, or none will do."""
    return None if found.value is None else found.tried[found.value].interval("usd_per_1m_output_tokens").estimate


def per_token(found: Fewest) -> list[str]:
    """What tokens cost with the fewest, in a sentence; none where nothing has a price."""
    if found.value is None or usd_per_million(found) is None:
        return []
    tried = found.tried[found.value]
    spans = {what: tried.interval(f"usd_per_1m_{what}_tokens") for what in ("output", "total")}
    said = [f"{written.plus_minus(s)} USD for 1M {w} tokens" for w, s in spans.items() if s.estimate is not None]
    return [f"At this load that is {tables.joined(said)}, idle time included."]


def table(found: Fewest) -> Table:
    """A row a value that was tried."""
    head = (
        found.path.rpartition(".")[2],
        *(tables.label(o.key) for o in found.objectives),
        "USD an hour",
        "seeds",
        "holds",
    )
    rows = []
    for value, tried in sorted(found.tried.items()):
        cells = [written.figure(o.key, tried.intervals.get(str(o))) for o in found.objectives]
        price = number(found.usd[value]) if found.usd[value] else tables.DASH
        rows.append((str(value), *cells, price, number(len(tried.seeds)), _VERDICTS[tried.met]))
    limits = "; ".join(str(o) for o in found.objectives)
    return Table("Tried", head, rows, f"± half of the interval, or its ends; limits: {limits}")


def figure(found: Fewest) -> figures.Figure:
    """Every objective's figure as a share of its limit, with intervals, against the value."""
    data, told = [], []
    for k, objective in enumerate(found.objectives):
        shown = [
            (value, share)
            for value, tried in sorted(found.tried.items())
            if (share := _shares(tried.intervals.get(str(objective)), objective)) is not None
        ]
        middle = [share[0] for _, share in shown]
        if shown:
            told.append(f"{objective} {course(list(zip([value for value, _ in shown], middle, strict=True)))}")
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": str(objective),
                "x": [value for value, _ in shown],
                "y": middle,
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [share[2] - share[0] for _, share in shown],
                    "arrayminus": [share[0] - share[1] for _, share in shown],
                    "color": figures.PALETTE[k % 6],
                },
                "line": {"color": figures.PALETTE[k % 6], "width": 2, "dash": figures.DASHES[k % 6]},
                "hovertemplate": "%{x}: %{y:.1f} % of the limit<extra>" + str(objective) + "</extra>",
            }
        )
    shapes = [style.across(100, dash="dash")]
    if found.value is not None:
        shapes.append(style.upright(found.value, figures.GREEN, width=2))
    return {
        "data": data,
        "layout": figures.layout(
            380,
            f"Share of its limit (%) that each objective takes, against {found.path}: {'; '.join(told)}. "
            + ("None keeps all." if found.value is None else f"The fewest that keep all: {found.value}."),
            xaxis=figures.axis(found.path, rangemode="tozero"),
            yaxis=figures.axis("Share of the limit (%)", type="log"),
            shapes=shapes,
            showlegend=True,
        ),
    }


def _shares(span: Any, objective: Objective) -> tuple[float, float, float] | None:
    """Estimate, low and high in percent of the limit; above 100 it is broken, whichever way the objective looks."""
    if span is None or span.estimate is None:
        return None
    limit = objective.limit * (1.0 if objective.statistic is None else 1e3)
    # An end that the sample does not hold, such as the upper one of a tail, is not drawn.
    ends = [span.estimate, *(span.estimate if end is None else end for end in (span.low, span.high))]
    if limit <= 0 or min(ends) <= 0:
        return None
    shares = [100 * (end / limit if objective.comparison == "<=" else limit / end) for end in ends]
    return shares[0], min(shares[1:]), max(shares[1:])


def page(found: Fewest) -> html.Page:
    cards = [] if found.value is None else [
        (str(found.value), f"fewest {found.path.rpartition('.')[2]}"),
        (number(found.usd[found.value]), "USD an hour"),
        (of_limit(found.tried[found.value].worst), "of the limit, the worst objective"),
    ]  # fmt: skip
    section = html.Section(
        "",
        "\n".join(sentences(found)),
        cards,
        [table(found)],
        [(f"Objectives against {found.path}", figure(found), True)],
    )
    lead = f"{found.scenario.name}: how far {found.path} can go down until an objective breaks."
    return html.Page(f"Fewest {found.path}", lead, [section], [("Scenario", found.scenario.to_yaml())])


def write(found: Fewest, folder: Path) -> Path:
    """Writes fewest.html and fewest.json into a folder; other files in it stay. The page's path."""
    files.write(folder, {"fewest.json": dumps(to_dict(found)) + "\n", "fewest.html": html.render(page(found))})
    return folder / "fewest.html"
