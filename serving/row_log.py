"""Who had a row in which step: what a replica writes down of it, so that all of it can be found again (`serving.rows`).

A decode that runs along has a row in every step that decodes at all, so only what breaks that rule is written: prompt chunks, rows
that verify drafts, the first row after an admission, a row wasted on an answer that had ended, and a running decode that was left out.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from serving.plan import Scheduled, StepPlan
from serving.request import Status

Column = NDArray[np.int64]

CHUNK_COLUMNS = (
    "replica",
    "step",
    "request",
    "tokens",  # 0 of a running decode that is left out of a step that has decodes
    "context",  # tokens before the step
    "samples",  # 1 if a token comes out
)
pack_chunk = Struct(f"{len(CHUNK_COLUMNS) - 1}q").pack


class RowLog:
    """Rows of one replica that do not follow from those before them.

    chunks: CHUNK_COLUMNS but for the replica, one row after another, in the order of steps.
    aborted: pairs (step, request) as the step log keeps them.
    every: every row is written (where the engine speculates, since contexts then follow from nothing).
    """

    def __init__(self, aborted: Sequence[int], every: bool = False) -> None:
        self.aborted = aborted
        self.every = every
        self.chunks = array("q")
        self.decoding: dict[int, Scheduled] = {}  # requests whose prompt is complete, with their last rows

    def add(self, plan: StepPlan) -> None:
        """Notes the rows of a step, before its result has been applied."""
        decoding, step = self.decoding, plan.step
        for request in plan.preempted:
            decoding.pop(request.index, None)
        absent = len(decoding)
        for row in plan.scheduled:
            request = row.request
            goes_on = request.index in decoding
            absent -= goes_on
            if self.every or row.tokens > 1 or not goes_on or request.status is Status.FINISHED:
                self._write(step, request.index, row.tokens, row.context, row.samples)
            if row.samples:
                decoding[request.index] = row
            elif goes_on:
                del decoding[request.index]
        if absent:
            self._left_out(plan)

    def _left_out(self, plan: StepPlan) -> None:
        """Decodes without a row: they had ended, or they were skipped. (Whoever was preempted or aborted when the next step was
        decided, as it may have been by now, was still there.)"""
        present = {row.request.index for row in plan.scheduled}
        gone = {i for step, i in zip(self.aborted[::2], self.aborted[1::2], strict=True) if step <= plan.step}
        for index, last in [item for item in self.decoding.items() if item[0] not in present]:
            if last.request.status is Status.FINISHED or index in gone:
                del self.decoding[index]
            elif plan.shape.decode_sequences:
                self._write(plan.step, index, 0, last.context + last.tokens, False)

    def _write(self, *row: int) -> None:
        self.chunks.frombytes(pack_chunk(*row))

    def table(self, replica: int, alone: Column, steps: int) -> Column:
        """CHUNK_COLUMNS, int64 `(rows, 6)`, in the order of steps.

        alone: `(rows, 3)`: step, request, tokens of prompts that were a step's only one, and whole.
        steps: of the log; rows of steps that were taken back are left out.
        """
        written = np.array(self.chunks, dtype=np.int64).reshape(-1, len(CHUNK_COLUMNS) - 1)
        whole = np.column_stack([alone, np.zeros(len(alone), np.int64), np.ones(len(alone), np.int64)])
        rows = np.concatenate([written[written[:, 0] < steps], whole])
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        return np.column_stack([np.full(len(rows), replica, dtype=np.int64), rows])
