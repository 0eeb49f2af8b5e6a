"""A simulation as its client, or its engine, sees it: a run like a measured one."""

from __future__ import annotations

import numpy as np

from calibration.measured.checked import measured
from calibration.measured.run import Ints, MeasuredRun
from serving.metrics import arrays
from serving.records import Records


def as_seen(
    records: Records,
    *,
    name: str = "simulated",
    before_ns: int = 0,
    by_engine: bool = False,
) -> MeasuredRun:
    """A simulation's finished requests as a client sees them, rows in order of arrival.

    Args:
        by_engine: counted from when the engine saw each request instead: at once if it was idle, else at the end of the step
            in flight.
        before_ns: from a client's arrival to the engine's.
    """
    r, raw = records.requests, arrays(records)
    rows = np.flatnonzero(records.submitted)
    done = np.flatnonzero(records.finished[rows])
    outputs = np.array(raw["output_lens"], dtype=np.int64)[done]
    before = before_ns / 1e9
    unseen = _unseen_ns(records)[rows][done] / 1e9 if by_engine else np.zeros(len(done))
    ttft = np.array(raw["ttfts"])[done] + before - unseen
    itls = [np.array(raw["itls"][i], dtype=np.float64) for i in done.tolist()]
    return measured(
        name,
        "simulation",
        arrival=r["arrival_ns"][rows][done] / 1e9 + unseen,
        input_tokens=np.array(raw["input_lens"])[done],
        output_tokens=outputs,
        ttft=ttft,
        e2e=np.maximum(np.array(raw["latencies"])[done] + before - unseen, ttft),
        itls=itls,
        origin="sent" if before_ns else "engine",
    )


def _unseen_ns(records: Records) -> Ints:
    """From each request's arrival to the end of the step that its replica was running then; 0 where it was idle."""
    r, steps = records.requests, records.steps
    waits = np.zeros(len(r["arrival_ns"]), dtype=np.int64)
    for replica in np.unique(steps["replica"]):
        mine, its = r["replica"] == replica, steps["replica"] == replica
        start, end, arrival = steps["start_ns"][its], steps["end_ns"][its], r["arrival_ns"][mine]
        last = np.searchsorted(start, arrival, side="left") - 1  # began before it
        waits[mine] = np.where(last >= 0, np.maximum(end[np.maximum(last, 0)] - arrival, 0), 0)
    return waits
