"""A bar a request, by phase: what each waited for, side by side with those that it shared the engine with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scenarios.errors import InputError
from serving.metrics import by_request
from serving.records import Records
from serving.request import Status
from studies.figures.alt_text import counted, duration, number
from studies.figures.phases import DECODE, PHASES, PREEMPTED, PREFILL, QUEUE, Span, phases
from studies.figures.style import BLUE, INK, ORANGE, PALE, RED, Figure, axis, layout

MOST = 60
ROW = 10
"""Pixels that a request takes."""
NAMED = 24
"""Requests up to which each has its number on the axis."""
# In grey: pale and hatched, light, dark, crossed.
LOOKS = {
    QUEUE: (PALE, "/"),
    PREFILL: (ORANGE, ""),
    DECODE: (BLUE, ""),
    PREEMPTED: (RED, "x"),
}


def requests(
    records: Records, rows: Sequence[int] | None = None, most: int = MOST, around: int | None = None
) -> Figure:
    """Bars of requests by phase over time, the first arrival on top; a point's `customdata` is `[request]`.

    rows: which requests, the first `most` of them by arrival. By default those that arrived around one: `neighbours` of `around`, or else of
    the `slowest`. A request that was sent again has a bar for every try.

    Raises:
        InputError: there is no such request, or it was never sent.
    """
    _check(records, [*(rows or ()), *(() if around is None else (around,))])
    if rows is None:
        centre = slowest(records) if around is None else around
        shown = [] if centre is None else neighbours(records, centre, most)
    else:
        centre = around
        arrival = records.requests["arrival_ns"]
        shown = sorted(set(rows), key=lambda i: (int(arrival[i]), i))[:most]
    spans = phases(records, shown)
    hover = [_told(records, i, found) for i, found in zip(shown, spans, strict=True)]
    data = [_bars(phase, shown, spans, hover) for phase in PHASES]
    data = [trace for trace in data if trace["x"]]
    data += _unanswered(records, shown, spans)
    names = _names(shown, centre)
    return {
        "data": data,
        "layout": layout(
            max(180, 100 + ROW * len(shown)),
            _alt(records, shown, spans, None if rows is not None else centre),
            barmode="overlay",
            showlegend=True,
            xaxis=axis("Time (s)"),
            yaxis=axis(
                "Request, by arrival",
                range=[len(shown) - 0.4, -0.6],
                tickvals=list(names),
                ticktext=list(names.values()),
                showgrid=False,
                tickfont={"size": 10},
            ),
        ),
    }


def _check(records: Records, requests: Sequence[int]) -> None:
    status = records.requests["status"]
    for request in requests:
        if not 0 <= request < len(status):
            raise InputError(f"request {request}: found no such request; there are 0 to {len(status) - 1:,}")
        if status[request] < 0:
            raise InputError(f"request {request}: it was never sent in this run; choose another")


def slowest(records: Records, metric: str = "e2el") -> int | None:
    """The request with the largest `ttft`, `tpot`, `e2el` or `queue`; if nobody finished, who was there for longest; None if
    nobody was sent."""
    taken = by_request(records, metric)
    if np.isnan(taken).all():
        r = records.requests
        ends = np.where(r["finish_ns"] >= 0, r["finish_ns"], int(records.steps["end_ns"].max(initial=0)))
        taken = np.where(records.submitted, ends - r["arrival_ns"], np.nan)
    return None if np.isnan(taken).all() else int(np.nanargmax(taken))


def neighbours(records: Records, around: int, most: int = MOST) -> list[int]:
    """The requests that arrived at its replica before and after one, in order of arrival, itself among them."""
    r = records.requests
    there = np.flatnonzero(records.submitted & (r["replica"] == r["replica"][around]))
    there = there[np.argsort(r["arrival_ns"][there], kind="stable")]
    place = int(np.flatnonzero(there == around)[0])
    first = max(0, min(place - most // 2, len(there) - most))
    return [int(i) for i in there[first : first + most]]


def _bars(phase: str, shown: Sequence[int], spans: Sequence[Sequence[Span]], hover: Sequence[str]) -> dict[str, Any]:
    """One phase of all requests."""
    found = [(k, b, e) for k, some in enumerate(spans) for name, b, e in some if name == phase]
    color, pattern = LOOKS[phase]
    return {
        "type": "bar",
        "orientation": "h",
        "name": phase,
        "width": 0.8,
        "y": [k for k, _, _ in found],
        "base": [_seconds(b) for _, b, _ in found],
        "x": [_seconds(e - b) for _, b, e in found],
        "customdata": [[shown[k]] for k, _, _ in found],
        "hovertext": [
            f"{hover[k]}<br><b>{phase}</b> {duration((e - b) / 1e9)} from {b / 1e9:.4g} s" for k, b, e in found
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": color, "line": {"width": 0}, "pattern": _pattern(pattern)},
        "unselected": {"marker": {"opacity": 0.45}},
    }


def _pattern(shape: str) -> dict[str, Any]:
    return {"shape": shape, "size": 5, "solidity": 0.25, "fgcolor": INK, "fgopacity": 0.55, "fillmode": "overlay"}


def _unanswered(records: Records, shown: Sequence[int], spans: Sequence[Sequence[Span]]) -> list[dict[str, Any]]:
    """Crosses where requests ended without a whole answer."""
    r = records.requests
    found = [
        (
            k,
            i,
            Status(int(r["status"][i])).name.lower().replace("_", " "),
            spans[k][-1][2] if spans[k] else int(r["arrival_ns"][i]),
        )
        for k, i in enumerate(shown)
        if r["status"][i] != Status.FINISHED
    ]
    if not found:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "not answered",
            "x": [_seconds(at) for *_, at in found],
            "y": [k for k, *_ in found],
            "customdata": [[i] for _, i, *_ in found],
            "text": [f"request {i}: {status}" for _, i, status, _ in found],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": INK, "symbol": "x", "size": 6},
        }
    ]


def _names(shown: Sequence[int], centre: int | None) -> dict[int, str]:
    """Numbers of requests by their row: of all, or of every fifth; of the one in the middle of attention in bold."""
    every = 1 if len(shown) <= NAMED else 5
    names = {k: str(i) for k, i in enumerate(shown) if k % every == 0}
    if centre in shown:
        at = shown.index(centre)
        names = {k: name for k, name in names.items() if every == 1 or abs(k - at) > 1}
        names[at] = f"<b>{centre}</b>"
    return dict(sorted(names.items()))


def _told(records: Records, request: int, spans: Sequence[Span]) -> str:
    """A request in a few lines."""
    r = records.requests
    prompt, cached, output, arrival = (
        int(r[name][request]) for name in ("prompt_tokens", "cached_tokens", "output_tokens", "arrival_ns")
    )
    hits = f" ({cached:,} cached)" if cached > 0 else ""
    first, finish = int(r["first_token_ns"][request]), int(r["finish_ns"][request])
    times = [f"TTFT {duration((first - arrival) / 1e9)}"] if first >= 0 else []
    times += (
        [f"E2E {duration((finish - arrival) / 1e9)}"] if finish >= 0 and r["status"][request] == Status.FINISHED else []
    )
    parts = [f"{name} {duration(ns / 1e9)}" for name, ns in _sums([spans]).items() if ns]
    lines = (
        f"<b>request {request}</b>: {prompt:,} prompt{hits}, {max(output, 0):,} output tokens",
        ", ".join(times),
        ", ".join(parts),
    )
    return "<br>".join(text for text in lines if text)


def _sums(spans: Sequence[Sequence[Span]]) -> dict[str, int]:
    """Time in each phase in ns, over all requests."""
    found = dict.fromkeys(PHASES, 0)
    for some in spans:
        for phase, begin, end in some:
            found[phase] += end - begin
    return found


def _alt(records: Records, shown: Sequence[int], spans: Sequence[Sequence[Span]], centre: int | None) -> str:
    if not shown:
        return "Requests by phase over time: none was sent."
    sums = _sums(spans)
    whole = max(sum(sums.values()), 1)
    shares = ", ".join(f"{name} {number(100 * ns / whole)} %" for name, ns in sums.items() if ns)
    ends = [(some[0][1], some[-1][2]) for some in spans if some]
    over = f" from {number(min(b for b, _ in ends) / 1e9)} to {number(max(e for _, e in ends) / 1e9)} s" if ends else ""
    whose = "" if centre is None else f" that arrived around request {centre}"
    if centre is not None and len(np.unique(records.requests["replica"][records.submitted])) > 1:
        whose += f" at replica {int(records.requests['replica'][centre])}"
    said = f"{counted(len(shown), 'request')}{whose}, a bar each by phase{over}. Of their time: {shares or 'none'}."
    if centre is None or not (own := spans[shown.index(centre)]):
        return said
    parts = ", ".join(f"{name} {duration(ns / 1e9)}" for name, ns in _sums([own]).items() if ns)
    return f"{said} Request {centre}: {parts}."


def _seconds(ns: int) -> float:
    """To the microsecond: bars of one request touch."""
    return round(ns / 1e9, 6)
