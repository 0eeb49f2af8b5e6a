"""A small engine loop with constant step costs: records next to the token times that it really saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from serving.config import EngineConfig
from serving.records import Records, RequestLog, StepLog, gather
from serving.request import Request, Status
from serving.scheduler import Scheduler

MS = 1_000_000


@dataclass
class Driven:
    records: Records
    times: dict[int, list[int]]  # token times of each request in ns, as they happened
    engine: EngineConfig


def _drive(
    rows: list[tuple[int, int, int]],
    *,
    prefill_ms: float = 100,
    decode_ms: float = 10,
    **settings: object,
) -> Driven:
    """rows: (arrival in ms, prompt tokens, output tokens). A step with prefill takes `prefill_ms`, one without `decode_ms`."""
    engine = EngineConfig(**{"num_gpu_blocks": 1001, "enable_prefix_caching": False, **settings})  # type: ignore[arg-type]
    scheduler = Scheduler(engine)
    log, steps = RequestLog(len(rows)), StepLog()
    requests = [
        Request(i, ((f"p{i}", prompt),), output, arrival_ns=at * MS, output_key=f"out:{i}")
        for i, (at, prompt, output) in enumerate(rows)
    ]
    pending = sorted(requests, key=lambda r: r.arrival_ns)
    times: dict[int, list[int]] = {i: [] for i in range(len(rows))}
    now = 0
    while pending or scheduler.has_work:
        if not scheduler.has_work:
            now = max(now, pending[0].arrival_ns)
        while pending and pending[0].arrival_ns <= now:
            request = pending.pop(0)
            if engine.why_it_can_never_run(request.prompt_tokens, request.max_tokens):
                log.close(request, Status.REJECTED, now)
            else:
                scheduler.add(request)
        if not scheduler.has_work:
            continue
        plan = scheduler.schedule(now)
        for row in plan.scheduled:
            if row.request.first_scheduled_ns < 0:
                row.request.first_scheduled_ns = now
        end = now + round((prefill_ms if plan.shape.prefill else decode_ms) * MS)
        owned = engine.usable_blocks - plan.free_blocks
        steps.add(plan, now, now, end, owned)
        for row in plan.scheduled:
            if row.samples:
                times[row.request.index].append(end)
                if row.request.first_token_ns < 0:
                    row.request.first_token_ns = end
        for request in scheduler.update(plan):
            log.close(request, Status.FINISHED, end, submitted=request.index)
        now = end
    none = np.full(len(rows), -1, dtype=np.int64)
    return Driven(gather(log, [steps], none * 0, none, ("default",), {}), times, engine)


@pytest.fixture
def drive() -> Callable[..., Driven]:
    return _drive
