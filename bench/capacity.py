"""Whether a finer grid confirms a capacity: many loads around the answer, each with runs and seeds that the search has not seen.

Llama-3.1-8B on one H100, chat in the shape of the Azure trace, by default. Every load of the grid gets as many, long runs, and nothing is
decided on the way: the figures alone say between which loads an objective breaks.

    python bench/capacity.py [--scenario NAME] [--slo LIMITS] [--loads N] [--seeds N] [--requests N] [--json]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scenarios.objectives import Objective
from studies.capacity import objectives, search
from studies.capacity.attain import attain
from studies.capacity.load import Load
from studies.reports.strict_json import dumps

FRESH = 100_000
"""Added to the scenario's seed: the grid draws other requests than the search did."""


def grid(
    load: Load, around: tuple[float, float], asked: tuple[Objective, ...], loads: int, seeds: int, requests: int
) -> list[Any]:
    """Figures of loads evenly spread from a little below the interval to a little above it."""
    low, high = around
    margin = high - low
    rows = []
    for k in range(loads):
        x = float(f"{low - margin + 3 * margin * k / (loads - 1):.4g}")
        scenario = load.at(x)
        scenario = scenario.model_copy(update={"seed": scenario.seed + FRESH})
        found = attain(scenario, asked, most=seeds, requests=requests, longest=requests)
        rows.append({"load": x, **{name: span.to_dict() for name, span in found.intervals.items()}})
        print(f"{load.said(x)} ...", file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--scenario", default="azure-conversation")
    parser.add_argument("--slo", default="ttft_p99<=500ms, tpot_p95<=50ms")
    parser.add_argument("--loads", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--requests", type=int, default=24_000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    asked = objectives.parse(given.slo)
    began = time.perf_counter()
    found = search.highest_load(given.scenario, asked)
    wall = time.perf_counter() - began
    low, high = found.interval
    if low is None or high is None:
        raise SystemExit(found.why)
    rows = grid(found.over, (low, high), asked, given.loads, given.seeds, given.requests)
    kept = [all(o.met_by(row[str(o)]["estimate"]) for o in asked) for row in rows]
    held = [row["load"] for row, keeps in zip(rows, kept, strict=True) if keeps]
    broken = [row["load"] for row, keeps in zip(rows, kept, strict=True) if not keeps]
    border = [max(held, default=None), min(broken, default=None)]
    confirms = None not in border and border[1] > low and border[0] < high
    cpu = sum(tried.cpu_seconds for tried in found.tried.values())
    if given.json:
        told = {
            "interval": [low, high],
            "border": border,
            "confirms": confirms,
            "wall_seconds": wall,
            "cpu_seconds": cpu,
        }
        print(dumps(told | {"grid": rows}))
        return
    print(f"search: {low:g} to {high:g} in {wall:.0f} s ({cpu:.0f} CPU seconds)")
    for row, keeps in zip(rows, kept, strict=True):
        figures = ", ".join(f"{o}: {row[str(o)]['estimate']:.1f} ms" for o in asked)
        print(f"{row['load']:g}: {figures}: {'kept' if keeps else 'broken'}")
    print(f"the grid breaks between {border[0]} and {border[1]}: {'confirmed' if confirms else 'NOT confirmed'}")


if __name__ == "__main__":
    main()
