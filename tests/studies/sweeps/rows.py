"""Sweeps whose rows are made up: what is shown of them can be computed by hand."""

from __future__ import annotations

from collections.abc import Callable

from studies.sweeps import cells
from studies.sweeps.results import Sweep
from studies.sweeps.study import from_mapping

Figures = Callable[[dict, int], dict]


def sweep(axes, figures: Figures, seeds: int = 5, **fields) -> Sweep:
    """figures: of a cell by the values of its axes and its seed; an `error` among them makes it a failed one."""
    study = from_mapping({"base": "azure-conversation", "axes": axes, "seeds": seeds, **fields})
    rows = []
    for cell in cells.cells(study):
        found = figures(dict(cell.point.values), cell.seed)
        rows.append(cells.failed(cell, found["error"]) if "error" in found else cells.head(cell) | found)
    return Sweep(study, tuple(rows), run=len(rows))


def queueing(values: dict, seed: int) -> dict:
    """Latencies that grow with the load, and a throughput that does too."""
    rate = values.get("workload.rate", 5)
    width = values.get("engine.max_num_seqs", 16)
    return {
        "p50_ttft_ms": 1000.0 * rate / width + seed,
        "p95_ttft_ms": None,
        "output_throughput": 100.0 * rate + seed,
        "good_request_fraction": 1.0,
        "binding.cause": "sequences" if rate > 5 else None,
    }
