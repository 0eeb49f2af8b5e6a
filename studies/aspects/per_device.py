"""Figures of a run by device, so that systems of different sizes can be compared: tokens per GPU, and USD an hour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios.schema import Scenario
from serving.economics import HOURS_PER_MONTH


def devices(scenario: Scenario) -> int:
    """Devices of all replicas of all pools."""
    return sum(view.replicas * view.engine.tensor_parallel_size for view in scenario.of_pools())


def figures(summary: Mapping[str, Any], count: int) -> dict[str, float | int | None]:
    """`devices`, `output_throughput_per_gpu` (tok/s) and `usd_per_hour` (of all devices, used or idle) of a summary and a number of
    devices; None without a price, or where nothing ran."""
    throughput, month = summary["output_throughput"], summary.get("usd_per_month")
    return {
        "devices": count,
        "output_throughput_per_gpu": None if throughput is None else throughput / count,
        # To twelve digits: what rounding leaves behind them is no difference between runs.
        "usd_per_hour": None if month is None else float(f"{month / HOURS_PER_MONTH:.12g}"),
    }
