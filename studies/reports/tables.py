"""Tables as plain text cells, and how figures stand in them: on the terminal, in HTML and in Markdown alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DASH = "–"
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E", "queue": "queue time"}
LABELS = {
    "kv_capacity_tokens": "KV capacity (tokens)",
    "kv_capacity_requests": "KV capacity (mean conversations)",
    "kv_cache_hit_percent": "prefix cache hits (%)",
    "kv_internal_fragmentation_percent": "owned KV slots without a token (%)",
    "kv_external_fragmentation_percent": "free KV blocks outside the widest hole (%)",
    "request_goodput": "goodput (1/s)",
    "good_request_fraction": "good fraction",
    "usd_per_1m_output_tokens": "USD per 1M output tokens",
    "usd_per_1m_total_tokens": "USD per 1M tokens of all kinds",
    "usd_per_hour": "USD per hour",
    "output_throughput_per_gpu": "output per GPU (tok/s)",
    "output_token_throughput_per_user": "output per user (tok/s)",
}
_GROUP = re.compile(r"by_(?:class|tenant)\.(.+)\.((?:p[\d.]+_)?[a-z].*)")


@dataclass(frozen=True)
class Table:
    """title, column heads, rows of cells; the first column is text, the others are numbers. `note` stands below."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def number(value: float | int | None, digits: int = 3) -> str:
    """A figure for people: significant digits, thousands apart, a dash for None."""
    if value is None:
        return DASH
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.2e}"


def joined(names: Sequence[str]) -> str:
    """`A, B and C`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def few(names: Sequence[str], most: int = 2, between: str = ", ") -> str:
    """Some names, and how many more there are: `A, B and 3 more`; with lines or semicolons between them, `A; B; and 3 more`."""
    more = len(names) - most
    last = " " if between == ", " else between
    return between.join(names[:most]) + (f"{last}and {more:,} more" if more > 0 else "")


def milliseconds(value: float | None) -> str:
    """A time in milliseconds for people: in seconds from 1 s on."""
    if value is None:
        return DASH
    return f"{number(value / 1e3)} s" if abs(value) >= 1000 else f"{number(value)} ms"


def percent(share: float | None, signed: bool = False) -> str:
    if share is None:
        return DASH
    digits = 1 if abs(share) < 0.1 else 0
    hundredths = round(share * 100, digits) + 0.0  # without the minus of what rounds to nothing
    return f"{hundredths:{'+' if signed else ''}.{digits}f} %"


def between(summary: Mapping[str, Any]) -> str:
    """The interval of a KV capacity that nobody stated, in brackets; nothing for one that is known."""
    low, high = summary.get("kv_capacity_tokens_low"), summary.get("kv_capacity_tokens_high")
    return f" ({number(low)} to {number(high)})" if low is not None and low != high else ""


def label(key: str) -> str:
    """An export key for people: `p95_ttft_ms` reads "p95 TTFT (ms)", `by_class.chat.p95_ttft_ms` "chat: p95 TTFT (ms)"."""
    if (group := _GROUP.fullmatch(key)) is not None:
        return f"{group[1]}: {label(group[2])}"
    if key in LABELS:
        return LABELS[key]
    stat, _, rest = key.partition("_")
    metric = rest.removesuffix("_ms")
    if key.endswith("_ms") and metric in NAMES:
        return f"{stat} {NAMES[metric]} (ms)"
    if key.endswith("_throughput"):
        return key.replace("_", " ") + (" (1/s)" if key.startswith("request") else " (tok/s)")
    return key.replace("_", " ")


def name(key: str) -> str:
    """The same without its unit, for a sentence."""
    return re.sub(r" \([^)]*\)$", "", label(key))
