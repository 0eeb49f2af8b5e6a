"""How fast a sweep is: cells a second in one process and in two, and what a cell costs beyond its simulation.

1,000 cells by default: 20 rates x 10 batch sizes, 5 seeds, 1,000 requests of the Azure conversation trace's shape each. On a
machine that others use, look at CPU time: `speedup_by_cpu` is what two idle processors would give, the CPU time of one process
against that of the parent and half of its workers'.

    python bench/sweep.py [--points N] [--seeds N] [--requests N] [--workers N] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from studies.run import simulate
from studies.sweeps import run, study
from studies.sweeps.study import Study


def asked(points: int, seeds: int, requests: int) -> Study:
    sizes = [16, 24, 32, 48, 64, 96, 128, 192, 256, 512][: max(1, min(10, points // 2))]
    rates = {"from": 2, "to": 20, "steps": max(2, points // len(sizes))}
    return study.from_mapping(
        {
            "base": "azure-conversation",
            "set": [f"workload.requests={requests}"],
            "axes": {"workload.rate": rates, "engine.max_num_seqs": sizes},
            "seeds": seeds,
        }
    )


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def timed(of: Study, workers: int) -> dict[str, Any]:
    """Wall and CPU time of a whole sweep into a new folder. Its workers are begun and ended within."""
    from joblib.externals.loky import get_reusable_executor

    with tempfile.TemporaryDirectory() as folder:
        began, own, children = time.monotonic(), cpu_s(resource.RUSAGE_SELF), cpu_s(resource.RUSAGE_CHILDREN)
        done = run.sweep(of, out=Path(folder) / "o", processes=workers)
        wall = time.monotonic() - began
        if workers > 1:
            get_reusable_executor(max_workers=workers, reuse=True).shutdown(wait=True)
        own, children = cpu_s(resource.RUSAGE_SELF) - own, cpu_s(resource.RUSAGE_CHILDREN) - children
        table = (Path(folder) / "o" / "table.parquet").read_bytes()
    assert done.failed == 0
    return {"cells": done.run, "wall_s": wall, "parent_cpu_s": own, "workers_cpu_s": children, "table": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()

    of = asked(options.points, options.seeds, options.requests)
    began = time.process_time()
    planned = run.plan(of)
    planning = time.process_time() - began
    sample = planned.cells[:: (len(planned.cells) // 50) | 1]  # an odd stride meets every seed
    scenarios = [cell.scenario() for cell in sample]
    simulate(scenarios[0])
    began = time.process_time()
    for scenario in scenarios:
        simulate(scenario)
    plain = (time.process_time() - began) / len(scenarios)

    one, several = timed(of, 1), timed(of, options.workers)
    cells = one["cells"]
    alone = one["parent_cpu_s"] + one["workers_cpu_s"]
    result = {
        "cells": cells,
        "simulate_cpu_ms": 1e3 * plain,
        "cell_cpu_ms": 1e3 * alone / cells,
        "overhead_cpu_ms": 1e3 * (alone / cells - plain),
        "planning_cpu_s": planning,
        "one_wall_s": one["wall_s"],
        "several_wall_s": several["wall_s"],
        "speedup": one["wall_s"] / several["wall_s"],
        "parent_cpu_s": several["parent_cpu_s"],
        "workers_cpu_s": several["workers_cpu_s"],
        "speedup_by_cpu": alone / (several["parent_cpu_s"] + several["workers_cpu_s"] / options.workers),
        "same_table": one["table"] == several["table"],
    }
    result = {name: round(value, 2) if isinstance(value, float) else value for name, value in result.items()}
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:>18}  {value:,}" if not isinstance(value, bool) else f"{name:>18}  {value}")


if __name__ == "__main__":
    main()
