"""How fast the simulator is: requests per CPU second on a fixed workload.

100,000 requests, Poisson 15/s, inputs normal(512, 256) in [2, 2048], outputs normal(128, 64) in [2, 512], Qwen3-14B on one
H100 (roofline), 2,048 batched tokens, 256 sequences, prefix cache off; request and step records are kept.
For scale: a Go simulator does 8,100 requests per CPU second on it.

With --concurrency the same requests come from a closed loop of so many clients.

    python bench/simulator.py [--requests N] [--prefix-cache] [--asynchronous] [--concurrency C] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from scenarios.hardware import hardware
from scenarios.models import model
from scenarios.workload import Workload
from serving.config import EngineConfig
from sim.cluster import simulate
from sim.roofline import Roofline

GO_PEER = 8_100


def workload(n: int, seed: int = 0, rate: float = 15.0, concurrency: int | None = None) -> Workload:
    rng = np.random.default_rng(seed)
    arrivals = np.rint(np.cumsum(rng.exponential(1e9 / rate, n))).astype(np.int64)
    prompts = np.clip(np.rint(rng.normal(512, 256, n)), 2, 2048).astype(np.int64)
    outputs = np.clip(np.rint(rng.normal(128, 64, n)), 2, 512).astype(np.int64)
    none = np.full(n, -1, dtype=np.int64)
    zero = np.zeros(n, dtype=np.int64)
    if concurrency is not None:
        arrivals = none
    return Workload(arrivals, prompts, outputs, outputs, zero, zero, none, none, zero, concurrency=concurrency)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--prefix-cache", action="store_true", help="with the prefix cache, every prompt of its own")
    parser.add_argument("--asynchronous", action="store_true", help="steps are decided one step ahead")
    parser.add_argument("--concurrency", type=int, help="a closed loop of so many clients")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()

    engine = EngineConfig(
        num_gpu_blocks=20_000,
        max_model_len=8_192,
        max_num_seqs=256,
        max_num_batched_tokens=2_048,
        enable_prefix_caching=options.prefix_cache,
        async_scheduling=options.asynchronous,
    )
    cost = Roofline(model("Qwen3-14B"), hardware("H100"))
    load = workload(options.requests, concurrency=options.concurrency)
    started = time.process_time()
    records = simulate(engine, load, cost)
    cpu_s = time.process_time() - started

    finished = int(records.finished.sum())
    steps = len(records.steps["step"])
    result = {
        "requests": finished,
        "steps": steps,
        "leaps": records.info["leaps"],
        "cpu_s": round(cpu_s, 3),
        "requests_per_cpu_s": round(finished / cpu_s),
        "steps_per_cpu_s": round(steps / cpu_s),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "times_go_peer": round(finished / cpu_s / GO_PEER, 2),
        "loop_ns": loop_ns(),
    }
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:>20}  {value:,}")


def loop_ns() -> float:
    """CPU time of one turn of a plain loop: what this interpreter makes of this machine just now (about 30 when quiet)."""
    started = time.process_time()
    x = 0
    for i in range(2_000_000):
        x += i & 7
    return round((time.process_time() - started) * 500, 1)


if __name__ == "__main__":
    main()
