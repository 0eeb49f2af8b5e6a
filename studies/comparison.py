"""Several scenarios simulated, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.schema import Scenario
from studies import tables
from studies.results import Run
from studies.run import simulate

ROWS = (
    "kv_capacity_tokens",
    "kv_capacity_requests",
    "mean_ttft_ms",
    "p95_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p95_tpot_ms",
    "mean_e2el_ms",
    "request_throughput",
    "output_throughput",
    "request_goodput",
    "good_request_fraction",
    "kv_cache_hit_percent",
    "completed",
    "rejected",
    "preemptions",
    "usd_per_1m_output_tokens",
)


@dataclass
class Comparison:
    """Runs by a name of their own each."""

    runs: dict[str, Run]

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenarios": [
                {
                    "name": name,
                    "scenario_hash": run.info["scenario_hash"],
                    "binding": run.info["binding"],
                    **run.summary,
                }
                for name, run in self.runs.items()
            ]
        }

    def table(self) -> tables.Table:
        """A column a scenario; rows that no scenario has are left out."""
        rows = []
        for key in ROWS:
            values = [run.summary.get(key) for run in self.runs.values()]
            if any(value is not None for value in values):
                rows.append((tables.label(key), *(tables.number(value) for value in values)))
        rows.append(("engine busy", *(tables.percent(run.info["binding"]["busy"]) for run in self.runs.values())))
        return tables.Table("Compared", ("", *self.runs), rows)

    def sentences(self) -> list[str]:
        return [f"{name}: {run.info['binding']['sentence']}" for name, run in self.runs.items()]


def compare(found: Sequence[Scenario]) -> Comparison:
    """Simulates each scenario. Equal names are told apart by a number."""
    runs: dict[str, Run] = {}
    for scenario in found:
        name, k = scenario.name, 2
        while name in runs:
            name, k = f"{scenario.name} ({k})", k + 1
        runs[name] = simulate(scenario)
    return Comparison(runs)
