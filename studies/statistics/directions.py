"""Which way a figure is better, by its key."""

from __future__ import annotations

from typing import Literal

Better = Literal["lower", "higher"]

LOWER = frozenset(
    {
        "failed",
        "rejected",
        "timed_out",
        "aborted",
        "never_sent",
        "preemptions",
        "duration",
        "usd_per_request",
        "usd_per_good_request",
        "usd_per_session",
        "usd_per_hour",
        "usd_per_month",
        "usd_total",
        "usd_idle",
        "target_steps_per_output_token",
        "kv_internal_fragmentation_percent",
        "kv_external_fragmentation_percent",
    }
)
HIGHER = frozenset(
    {
        "completed",
        "request_goodput",
        "good_request_fraction",
        "output_token_throughput_per_user",
        "output_throughput_per_gpu",
        "kv_cache_hit_percent",
        "kv_survival_percent",
        "kv_capacity_tokens",
        "kv_capacity_requests",
        "expected_quality",
    }
)


def better(key: str) -> Better | None:
    """Whether a figure is better `lower` or `higher`; None of one that is neither (`steps`, `device_utilization`).

    key: of the summary, or of a class or tenant within it (`by_class.chat.mean_ttft_ms`).
    """
    name = key.rpartition(".")[2]
    if name in LOWER or name.endswith("_ms") or (name.startswith("usd_") and "_per_1m_" in name):
        return "lower"
    if name in HIGHER or name.endswith("_throughput"):
        return "higher"
    return None
