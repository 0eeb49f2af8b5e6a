"""The headline figures of a run as cards, each with its change against another run: which of them, and in what words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from studies.aspects.kv_use import kv_use
from studies.reports.tables import DASH, milliseconds, number, percent
from studies.results import Run
from studies.statistics.directions import better

SAME = 0.005
"""A change below half a per cent is none."""
Colour = Literal["normal", "inverse", "off"]


@dataclass(frozen=True)
class Card:
    """One figure.

    value: as it is shown; a dash where there is none, and `help` says why. change: against the baseline, in words; empty without one.
    colour: whether more is good (`normal`), bad (`inverse`) or neither (`off`), as `st.metric` calls it.
    """

    label: str
    value: str
    help: str
    change: str = ""
    colour: Colour = "off"


@dataclass(frozen=True)
class _Figure:
    """key: of the summary, or of `_more`. kind: how it is written, and how two of them are compared."""

    key: str
    label: str
    help: str
    kind: Literal["ms", "share", "percent", "count", "rate", "tokens", "usd"]


_FIGURES = (
    _Figure("p50_ttft_ms", "TTFT p50", "Time to first token, queue included: half of the requests wait less.", "ms"),
    _Figure("p95_ttft_ms", "TTFT p95", "One request in twenty waits longer for its first token.", "ms"),
    _Figure("p99_ttft_ms", "TTFT p99", "One request in a hundred waits longer for its first token.", "ms"),
    _Figure("p50_tpot_ms", "TPOT p50", "Time per output token after the first: half of the requests are faster.", "ms"),
    _Figure("p95_tpot_ms", "TPOT p95", "One request in twenty gets its tokens slower than this.", "ms"),
    _Figure("good_request_fraction", "Good", "Share of all requests sent that kept every promise of the SLO.", "share"),
    _Figure("request_goodput", "Goodput", "Requests a second that kept every promise of the SLO.", "rate"),
    _Figure("output_throughput", "Output", "Tokens of answers a second, over the whole run and all replicas.", "tokens"),
    _Figure("kv_peak", "KV peak", "Share of its KV blocks that requests own, on the replica and at the step where it is largest; at 100 % requests wait or are preempted.", "share"),
    _Figure("kv_mean", "KV mean", "Share of all KV blocks that requests own, over the whole run, idle time included.", "share"),
    _Figure("preemptions", "Preempted", "How often a running request lost its KV memory and had to wait for it again.", "count"),
    _Figure("kv_cache_hit_percent", "Cache hits", "Share of prompt tokens that were found in the prefix cache, and not computed.", "percent"),
    _Figure("usd_per_1m_output_tokens", "1M output", "USD of device time, idle time included, for a million tokens of answers.", "usd"),
    _Figure("usd_per_1m_total_tokens", "1M total", "USD of device time, idle time included, for a million tokens of prompts and answers.", "usd"),
)  # fmt: skip


def cards(run: Run, baseline: Run | None = None) -> list[Card]:
    """Every headline figure of a run; baseline: what it is compared with."""
    values, others = _values(run), {} if baseline is None else _values(baseline)
    return [_card(figure, run, values, others) for figure in _FIGURES]


def _values(run: Run) -> dict[str, Any]:
    use = kv_use(run)
    return run.summary | {"kv_peak": None if use is None else use.peak, "kv_mean": None if use is None else use.mean}


def _card(figure: _Figure, run: Run, values: dict[str, Any], others: dict[str, Any]) -> Card:
    value, other = values.get(figure.key), others.get(figure.key)
    if value is None:
        return Card(figure.label, DASH, f"{figure.help} Not stated: {_why(figure, run)}.")
    write = _WRITTEN[figure.kind]
    if not others:
        return Card(figure.label, write(value), figure.help)
    if other is None:
        return Card(figure.label, write(value), f"{figure.help} The baseline has no such figure.")
    way = better(figure.key)
    change = changed(figure.kind, value, other)
    colour: Colour = "off" if way is None or change == "same" else "inverse" if way == "lower" else "normal"
    return Card(figure.label, write(value), f"{figure.help} Baseline: {write(other)}.", change, colour)


def changed(kind: str, value: float, other: float) -> str:
    """By how much a figure is more or less than another, signed: shares in percentage points, counts as they are, others in per cent."""
    if kind in ("share", "percent"):
        points = round((value - other) * (100 if kind == "share" else 1), 1)
        return f"{points:+g} pp" if points else "same"
    if kind == "count" or not other:
        difference = value - other
        return f"{'+' if difference > 0 else '-'}{_WRITTEN[kind](abs(difference))}" if difference else "same"
    ratio = value / other
    if abs(ratio - 1) < SAME:
        return "same"
    return f"{number(ratio)}-fold" if ratio >= 10 else f"{100 * (ratio - 1):+.{0 if abs(ratio - 1) > 0.1 else 1}f} %"


def _why(figure: _Figure, run: Run) -> str:
    if (reason := run.summary["refused"].get(figure.key)) is not None:
        return str(reason)
    if figure.key in ("request_goodput", "good_request_fraction"):
        return "no SLO is promised; set one at the side"
    if figure.key == "kv_cache_hit_percent":
        return "the prefix cache is off, or no prompt was computed"
    return "nothing that it could be told from happened"


def _usd(value: float) -> str:
    return f"${value:.2f}" if value >= 0.1 or not value else f"${number(value)}"


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "ms": milliseconds,
    "share": percent,
    "percent": lambda value: percent(value / 100),
    "count": number,
    "rate": lambda value: f"{number(value)}/s",
    "tokens": lambda value: f"{number(value)} tok/s",
    "usd": _usd,
}
