"""How full KV memory was."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studies.results import Run


@dataclass(frozen=True)
class KvUse:
    """Shares of the usable blocks that requests owned, 0 to 1: of one replica at its fullest, and of all in the mean over the run."""

    peak: float
    mean: float


def kv_use(run: Run) -> KvUse | None:
    """None of a run without steps, or one whose KV memory is not known."""
    steps = run.records.steps
    pools = run.info.get("pools") or [{"engine": run.info.get("engine") or {}, "replicas": run.info["replicas"]}]
    usable = [pool["engine"].get("num_gpu_blocks", 1) - 1 for pool in pools for _ in range(pool["replicas"])]
    end = int(steps["end_ns"].max(initial=0))
    if not end or min(usable) < 1:
        return None
    each = np.array(usable, dtype=np.float64)[steps["replica"]]
    spent = float(np.sum(steps["kv_blocks"] * (steps["end_ns"] - steps["start_ns"]).astype(np.float64)))
    return KvUse(float((steps["kv_blocks"] / each).max()), spent / (float(sum(usable)) * end))
