"""Rows of docs/strategies.md that show what an ablation finds. `python -m tests.studies.strategies_page [NAME ...]` writes them anew."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from studies import ablations

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"

Format = Callable[[float], str]


def plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def time(ms: float) -> str:
    return f"{plain(ms / 1000)} s" if ms >= 1000 else f"{plain(ms)} ms"


def percent(value: float) -> str:
    return f"{plain(value)} %"


FIGURES: dict[str, tuple[str, Format]] = {
    "output_throughput": ("output tokens a second", plain),
    "request_throughput": ("requests a second", plain),
    "kv_cache_hit_percent": ("prefix cache hits", percent),
    "good_request_fraction": ("good requests", lambda share: percent(100 * share)),
    "total_input_tokens": ("prompt tokens", plain),
    "total_output_tokens": ("answer tokens", plain),
    "max_concurrent_requests": ("most at once", plain),
    "aborted": ("left", plain),
    "timed_out": ("timed out", plain),
    "duration": ("duration", lambda seconds: f"{plain(seconds)} s"),
    "kv_capacity_tokens": ("KV capacity, tokens", plain),
    "kv_capacity_requests": ("mean requests that fit", plain),
    "kv_internal_fragmentation_percent": ("internal fragmentation", percent),
    "kv_external_fragmentation_percent": ("external fragmentation", percent),
    "kv_survival_percent": ("KV still there after pauses", percent),
    "expected_quality": ("expected quality", plain),
    "device_utilization": ("devices busy", lambda share: percent(100 * share)),
    "usd_per_request": ("USD per 1,000 requests", lambda usd: plain(1000 * usd)),
    "usd_per_good_request": ("USD per 1,000 good requests", lambda usd: plain(1000 * usd)),
    "usd_revenue": ("USD revenue", plain),
    "usd_margin_per_month": ("USD margin a month", plain),
    "usd_total": ("USD in all", plain),
    "usd_per_1m_total_tokens": ("USD per 1M tokens", plain),
    "usd_per_1m_output_tokens": ("USD per 1M output tokens", plain),
    "usd_marginal_per_1m_output_tokens": ("marginal USD per 1M output tokens", plain),
}
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E", "queue": "queue time"}


def figure(metric: str) -> tuple[str, Format]:
    """What a key of the summary is called, and how it is written."""
    if latency := re.fullmatch(r"(mean|median|p\d+)_(\w+)_ms", metric):
        return f"{latency[1]} {LATENCIES[latency[2]]}", time
    return FIGURES.get(metric, (metric, plain))


def row(found: ablations.Ablated) -> str:
    """The line of an ablation: its question, and every figure that something is expected of."""
    figures: dict[tuple[str, str | None], dict[str, float]] = {}
    for outcome in found.outcome:
        expected = outcome.expected
        named = figures.setdefault((expected.metric, expected.of_class), {})
        for variant, value in ((expected.first, outcome.first), (expected.than, outcome.than)):
            assert value is not None
            named[variant] = value
    parts = []
    for (metric, of_class), values in figures.items():
        name, written = figure(metric)
        of = f" of {of_class}" if of_class else ""
        each = ", ".join(f"{v} {written(values[v])}" for v in found.ablation.variants if v in values)
        parts.append(f"{name}{of}: {each}")
    link = f"[`{found.name}`](../scenarios/ablations/{found.name}.yaml)"
    return f"| {link} | {found.ablation.question} | {'; '.join(parts)} |"


def written_row(name: str) -> str:
    """The line of an ablation on the page; empty where there is none."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return next((line for line in lines if line.startswith(f"| [`{name}`]")), "")


if __name__ == "__main__":
    for each in sys.argv[1:] or ablations.names():
        if old := written_row(each):
            text = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(text.replace(old, row(ablations.run(each))), encoding="utf-8")
            print(each)
        else:
            print(f"{each}: give it a line on the page first: | [`{each}`] |")
