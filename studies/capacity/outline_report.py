"""A curve at a glance, for people: in sentences, in cards, and as a table of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scenarios.objectives import LATENCIES
from studies.capacity import boundary
from studies.capacity.attainment import BACKLOG, TURNED_AWAY
from studies.capacity.evidence import CURVES
from studies.capacity.search import Capacity
from studies.reports import tables

if TYPE_CHECKING:
    import pyarrow as pa

KNEE = (
    "Knee: of the loads that were run, the one with the highest power, which is throughput over mean latency (Kleinrock 1979). Below it "
    "more load costs little latency, above it more load buys little throughput."
)
BOUNDARY = (
    "Limit (estimate): where a figure passes its limit on a straight line between two loads, on logarithmic scales; pale, where the ends "
    "of its interval do. The search below decides."
)
BANDS = (
    "Bands: intervals over seeds. A percentile is drawn where the runs carry it. Beyond the limit requests may pile up for as long as a "
    "run lasts; latencies there depend on its length."
)
SPANS = (
    "request_throughput",
    "output_throughput",
    "request_goodput",
    "good_request_fraction",
    "usd_per_1m_output_tokens",
)
"""Figures of every run that the table has, beside latencies."""
_REASONS = {BACKLOG: "requests pile up", TURNED_AWAY: "requests are turned away"}


def reason(name: str) -> str:
    """What breaks, in words: `tpot_p95 <= 30ms breaks`, `requests pile up`."""
    return _REASONS.get(name, f"{name} breaks")


def sentences(found: Capacity) -> list[str]:
    """Where the limit is, where the knee is, and where the scenario stands."""
    above, below = boundary.upper(found), boundary.lower(found)
    asked = tables.joined([str(o) for o in found.objectives])
    holds = "holds" if len(found.objectives) == 1 else "hold"
    loads = list(found.curve)
    said = []
    if above is not None:
        said.append(
            f"Estimate: {asked} {holds} up to about {about(found, above.load)} ({about(found, above.low)} to {about(found, above.high)}); "
            f"then {reason(above.objective)}."
        )
    elif boundary.is_beyond(found, loads[0]):
        broken = found.curve[loads[0]].broken
        why = reason(broken[0]) if broken else "a figure is beyond its limit"
        said.append(f"Even at {found.over.said(loads[0])} {why}; is the limit one that an empty engine can keep?")
    else:
        said.append(f"Nothing breaks up to {found.over.said(loads[-1])}.")
    if below is not None:
        said.append(f"Less than about {about(found, below.load)} does not reach {below.objective}.")
    if found.knee is not None:
        said.append(f"The knee is at {found.over.said(found.knee)}.")
    if above is not None:
        said.append(_as_it_is(found, above))
    return said


def _as_it_is(found: Capacity, above: boundary.Boundary) -> str:
    start = found.over.start
    if start <= above.load:
        return f"The scenario as it is, {found.over.said(start)}, is {start / above.load:.0%} of that."
    return f"The scenario as it is, {found.over.said(start)}, is {start / above.load:.2g} times that."


def about(found: Capacity, x: float) -> str:
    """An interpolated load, in three digits."""
    return found.over.said(round(x) if found.over.integer else float(f"{x:.3g}"))


def cards(found: Capacity) -> list[tuple[str, str]]:
    """Value and caption."""
    above = boundary.upper(found)
    shown = []
    if above is not None:
        shown.append((f"≈ {about(found, above.load)}", "limit (estimate)"))
        shown.append((above.objective, "breaks first"))
    if found.knee is not None:
        shown.append((found.over.said(found.knee), "knee"))
    done = [e for tried in found.curve.values() if (e := tried.interval("request_throughput").estimate) is not None]
    if done:
        shown.append((f"{max(done):.3g} requests/s", "most that ends a second"))
    return shown


def drawn(found: Capacity) -> list[str]:
    """Latencies worth a figure: those that objectives are about, TTFT and TPOT."""
    asked = {LATENCIES[o.metric] for o in found.objectives if o.statistic is not None}
    return [metric for metric in CURVES if metric in asked | {"ttft", "tpot"}]


def taken(found: Capacity) -> str:
    """How much was run."""
    every = list(found.curve.values())
    lengths = [tried.requests for tried in every]
    seeds = max(len(tried.seeds) for tried in every)
    one = f"{lengths[0]:,}" if min(lengths) == max(lengths) else f"{min(lengths):,} to {max(lengths):,}"
    runs = "one run each" if seeds == 1 else f"{seeds} seeds each"
    return f"{len(every)} loads, {runs}, {one} requests a run."


def frame(found: Capacity) -> pa.Table:
    """A row a load: its figures, each with the ends of its interval as `_low` and `_high`, and what was made of it."""
    import pyarrow as pa

    rows = []
    for x, tried in found.curve.items():
        row: dict[str, object] = {
            "load": x,
            "unit": found.over.unit,
            "decided": x in found.tried,
            "met": tried.met,
            "sustained": tried.sustained,
            "why": tried.why,
            "seeds": len(tried.seeds),
            "requests": tried.requests,
            "growth": tried.growth.estimate,
            "turned_away": tried.lost.estimate,
            "short_of": tried.binding.resource,
        }
        spans = {key: tried.interval(key) for key in SPANS} | tried.percentiles | tried.intervals
        for key, span in spans.items():
            row |= {key: span.estimate, f"{key}_low": span.low, f"{key}_high": span.high}
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.Table.from_pydict({name: [row.get(name) for row in rows] for name in names})
