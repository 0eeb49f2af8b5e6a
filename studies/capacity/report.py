"""A capacity for people: in sentences, in tables, as JSON and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scenarios.objectives import LATENCIES
from studies.capacity import figures
from studies.capacity.attainment import Attainment
from studies.capacity.evidence import CURVES
from studies.capacity.search import Capacity
from studies.figures import LATENCY_AXES
from studies.reports import files, html, tables, written
from studies.reports.strict_json import dumps
from studies.reports.tables import Table, number, percent
from studies.statistics.intervals import Interval

VERDICTS = {True: "met", False: "not met", None: "open"}
AT_LOAD = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "request_goodput",
    "good_request_fraction",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p50_tpot_ms",
    "p99_tpot_ms",
    "p50_e2el_ms",
    "kv_cache_hit_percent",
    "preemptions",
    "usd_per_1m_output_tokens",
)
"""What is said of the load that was found."""
_LATENCIES = {key for key in AT_LOAD if key.endswith("_ms")}


def sentences(found: Capacity) -> list[str]:
    """The answer, what binds, what stayed open, and what it took."""
    low, high = found.interval
    said = [_answer(found)]
    if high is not None:
        tried = found.tried[high]
        binding = tried.binding
        said.append(
            f"What binds at {found.over.said(high)}: {binding.objective}; short of {binding.resource}. {binding.sentence}"
        )
    if low is not None and high is not None:
        reasons: dict[str, list[str]] = {}
        for x in found.open:
            reasons.setdefault(found.tried[x].why, []).append(found.over.said(x))
        said += [f"It stayed open at {', '.join(loads)}: {why}." for why, loads in reasons.items()]
        if not found.open and high > low * (1 + found.resolution) and not found.over.integer:
            said.append(f"The interval is wider than the {percent(found.resolution)} asked for.")
    if found.beyond:
        said.append(
            f"More load is not always worse here: {', '.join(found.over.said(x) for x in found.beyond)} meets them again."
        )
    every = list(found.tried.values())
    longest = max(each.requests for each in every)
    seeds = max(len(each.seeds) for each in every)
    said.append(
        f"{len(every)} loads, {sum(each.runs for each in every)} runs, up to {seeds} seeds and {longest:,} requests each; "
        f"{sum(each.cpu_seconds for each in every):.0f} CPU seconds."
    )
    return said


def _answer(found: Capacity) -> str:
    low, high = found.interval
    asked = tables.joined([str(o) for o in found.objectives])
    if low is None:
        return f"No capacity. {found.why[:1].upper()}{found.why[1:]}."
    holds = "holds" if len(found.objectives) == 1 else "all hold" if len(found.objectives) > 2 else "both hold"
    if found.tried[low].alike:
        sure = ", in the one run that there is: the seed changes nothing, so no confidence can be stated"
    else:
        sure = f" at {found.confidence:.0%} confidence"
    text = f"Capacity: {found.over.said(low)}. There {asked} {holds}{sure}"
    if high is None:
        return f"{text}. {found.why[:1].upper()}{found.why[1:]}."
    return f"{text}; at {found.over.said(high)} no longer: {found.tried[high].why}."


def table(found: Capacity) -> Table:
    """A row a load that was tried."""
    head = (
        f"{found.over.path.rpartition('.')[2]}" + (f" ({found.over.unit})" if found.over.unit else ""),
        *(tables.label(o.key) for o in found.objectives),
        "piles up",
        "seeds",
        "requests",
        "verdict",
    )
    rows = []
    for x, tried in sorted(found.tried.items()):
        cells = [written.figure(o.key, tried.intervals[str(o)]) for o in found.objectives]
        value = f"{x:,.0f}" if found.over.integer else f"{x:,.4g}"
        more = (percent(tried.growth.estimate), number(len(tried.seeds)), number(tried.requests), VERDICTS[tried.met])
        rows.append((value, *cells, *more))
    limits = ", ".join(str(o) for o in found.objectives)
    note = (
        f"Limits: {limits}. Of the steady part of all runs, ± half of the interval over seeds, or its ends; piles up: the part of what "
        "arrives that the backlog grows by."
    )
    return Table("Loads", head, rows, note)


def at_load(found: Capacity) -> Table | None:
    """Figures under the load that was found."""
    low = found.load
    if low is None:
        return None
    tried = found.tried[low]
    rows = [
        (tables.label(key), written.figure(key, span))
        for key in AT_LOAD
        if (span := _figure(tried, key)).estimate is not None and not _odd(span)
    ]
    return Table(f"At {found.over.said(low)}", ("", "over seeds"), rows)


def _figure(tried: Attainment, key: str) -> Interval:
    return tried.percentiles.get(key) or (Interval(None) if key in _LATENCIES else tried.interval(key))


def _odd(span: Interval) -> bool:
    return span.low is None and "have no value" in span.refused


def to_dict(found: Capacity) -> dict[str, Any]:
    """All of it, JSON-able, but for the time that it took."""
    binding = found.binding
    if binding is not None and found.broken is not None:
        binding = binding | {"sentence": found.tried[found.broken].binding.sentence}
    curve = [{"load": x, **_at(tried)} for x, tried in found.curve.items()]
    return found.to_dict() | {"binding": binding, "knee": found.knee, "curve": curve}


def _at(tried: Attainment) -> dict[str, Any]:
    keys = ("request_throughput", "output_throughput", "request_goodput")
    spans = {key: tried.interval(key) for key in keys} | tried.percentiles
    return {key: span.to_dict() for key, span in spans.items() if span.estimate is not None and not _odd(span)}


def page(found: Capacity) -> html.Page:
    low, high = found.interval
    cards = [] if low is None else [(found.over.said(low), "capacity")]
    if high is not None:
        cards.append((found.over.said(high), "is too much"))
        cards.append((found.tried[high].binding.resource, "what is short there"))
    if found.knee is not None:
        cards.append((found.over.said(found.knee), "knee: most throughput for its latency"))
    asked = {LATENCIES[o.metric] for o in found.objectives if o.statistic is not None}
    drawn = [
        (f"{LATENCY_AXES[metric][0]} against load", figures.latency(found, metric), False)
        for metric in CURVES
        if metric in asked | {"ttft", "tpot"}
    ]
    drawn.append(("Throughput against load", figures.throughput(found), False))
    loads = html.Section("", "\n".join(sentences(found)[:-1]), cards, [], drawn, _CAPTION)
    there = at_load(found)
    listed = html.Section("Loads", "", (), [table(found), *([] if there is None else [there])])
    lead = f"{found.over.scenario.name}: the highest {found.over.path} with {tables.joined([str(o) for o in found.objectives])}."
    folded = [("Scenario", found.over.scenario.to_yaml())]
    return html.Page(f"Capacity of {found.over.scenario.name}", lead, [loads, listed], folded)


_CAPTION = (
    "Bands: intervals over seeds. Green: where the capacity lies. A percentile is drawn where the runs carry it. Beyond the "
    "capacity the backlog may grow for as long as a run lasts; latencies there depend on its length."
)


def write(found: Capacity, folder: Path) -> Path:
    """Writes capacity.html and capacity.json into a folder; other files in it stay. The page's path."""
    files.write(folder, {"capacity.json": dumps(to_dict(found)) + "\n", "capacity.html": html.render(page(found))})
    return folder / "capacity.html"
