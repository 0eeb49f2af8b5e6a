"""KV memory that is held and not used, and free memory that nobody can use, in numbers.

Only where nothing is shared: tokens in the prefix cache belong to several requests at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serving.config import EngineConfig
from serving.records import Records
from serving.request import Status
from serving.rows import Rows, rows_of

Column = NDArray[np.int64]


def internal_percent(records: Records, engine: EngineConfig) -> float | None:
    """Of the token slots in blocks that requests own, the part that holds no token, over the time in which steps run (internal
    fragmentation). None where rows were not logged or nothing ran."""
    rows = rows_of(records)
    if rows is None:
        return None
    steps = records.steps
    took = (steps["end_ns"] - steps["start_ns"]).astype(np.float64)
    slots = float(took @ steps["kv_blocks"]) * engine.block_size
    return 100.0 * (1.0 - float(took @ held_tokens(records, rows)) / slots) if slots else None


def external_percent(records: Records, engine: EngineConfig) -> float | None:
    """Of the free blocks, the part outside the widest hole, over the time in which steps run (external fragmentation); 0 where
    blocks need not be consecutive. None if nothing was ever free."""
    steps = records.steps
    took = (steps["end_ns"] - steps["start_ns"]).astype(np.float64)
    free = float(took @ (engine.usable_blocks - steps["kv_blocks"]))
    if not len(records.stranded):
        return 0.0 if free else None
    first = np.searchsorted(steps["replica"], np.arange(int(steps["replica"].max()) + 1))
    replica, step, blocks = records.stranded.T
    return 100.0 * float(took[first[replica] + step] @ blocks) / free


def held_tokens(records: Records, rows: Rows) -> Column:
    """Tokens whose KV requests hold when each step has run, `(steps,)`.

    A request holds what its last row brought it to, and from then on a token more in each step that it decodes in, until it is
    preempted, aborted or done. (Under asynchronous scheduling an answer that has ended keeps its blocks for a step more, in which
    its tokens do not count; drafts count until the next row.)
    """
    total = len(records.steps["step"])
    chunks, stretches = rows.chunks, rows.stretches
    lost = np.concatenate([records.preempted, records.aborted])
    replicas = 1 + max(int(records.steps["replica"].max(initial=-1)), int(lost[:, 0].max(initial=-1)))
    first = np.searchsorted(records.steps["replica"], np.arange(replicas + 1))
    # What is seen by a step that a horizon cut is lost when the replica's last one has ended.
    gone = np.minimum(first[lost[:, 0]] + lost[:, 1], first[lost[:, 0] + 1])
    # Points at which what a request holds is known: (request, step, rank at that step, tokens then, tokens at last, last step).
    none = np.zeros(len(lost), dtype=np.int64)
    after = chunks["context"] + chunks["tokens"]
    points = np.concatenate(
        [
            np.column_stack([lost[:, 2], gone, none, none, none, gone]),
            np.column_stack([chunks["request"], chunks["step"], np.ones_like(after), after, after, chunks["step"]]),
            np.column_stack(
                [
                    stretches["request"],
                    stretches["first"],
                    np.ones_like(stretches["first"]),
                    stretches["context"],
                    stretches["context"] + stretches["steps"],
                    stretches["last"],
                ]
            ),
        ]
    )
    points = points[np.lexsort((points[:, 2], points[:, 1], points[:, 0]))]
    request, at, _, then, at_last, last = points.T
    change = np.zeros(total + 1, dtype=np.int64)
    same = np.append(False, request[1:] == request[:-1])
    np.add.at(change, np.minimum(at, total), then - np.where(same, np.roll(at_last, 1), 0))
    final = np.append(request[1:] != request[:-1], True)[: len(request)]
    unfinished = records.requests["status"][request] == Status.IN_FLIGHT
    ends = np.append(first, total)
    end = np.where(unfinished, ends[np.searchsorted(first, last, side="right")], last + 1)
    np.add.at(change, np.minimum(end[final], total), -at_last[final])
    grows = np.zeros(total + 1, dtype=np.int64)
    np.add.at(grows, stretches["first"], 1)
    np.add.at(grows, stretches["last"] + 1, -1)
    decodes = np.cumsum(grows)[:total] * (np.diff(rows.decoded) > 0)
    return np.cumsum(change[:total] + decodes)
