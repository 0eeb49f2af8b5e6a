"""Workloads of requests that never meet."""

from __future__ import annotations

import numpy as np

from scenarios.workload import Workload


def alone(prompt: int, output: int, *arrivals_ns: int) -> Workload:
    """One request of these lengths at each of these times, every prompt a text of its own."""
    n = len(arrivals_ns)

    def column(value: int) -> np.ndarray:
        return np.full(n, value, dtype=np.int64)

    return Workload(
        arrival_ns=np.array(arrivals_ns, dtype=np.int64),
        prompt_tokens=column(prompt),
        output_tokens=column(output),
        max_tokens=column(output),
        priority=column(0),
        tenant=column(0),
        session=column(-1),
        follows=column(-1),
        think_ns=column(0),
    )
