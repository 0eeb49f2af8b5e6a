"""Block tables on the device, kept from step to step: a step uploads only the blocks that are new in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from scenarios.errors import InputError
from serving.plan import Scheduled
from serving.request import Request

Ints = NDArray[np.int32]


@dataclass
class _Row:
    request: Request
    row: int
    preemptions: int
    known: int  # blocks of it in the table


class BlockTables:
    """`(sequences + 1, width)` int32: a row per request that is served, row 0 all zeros for padding.

    host: the same as numpy, as far as it was changed. device: what kernels gather their tables from.
    """

    def __init__(self, sequences: int, width: int, device: torch.device) -> None:
        self.host = np.zeros((sequences + 1, width), dtype=np.int32)
        self.device = torch.zeros((sequences + 1, width), dtype=torch.int32, device=device)
        self._rows: dict[int, _Row] = {}
        self._free = list(range(sequences, 0, -1))

    def take(self, rows: list[Scheduled], block_size: int) -> tuple[Ints, NDArray[np.int64], Ints]:
        """Rows of the table for the rows of a plan, and what changed.

        Returns:
            table rows `(S,)` int32, changed cells `(C,)` as flat int64 positions, and their block ids `(C,)` int32.

        Raises:
            InputError: more sequences than the table has rows.
        """
        numbers, at, ids = [], [], []
        width = self.host.shape[1]
        for scheduled in rows:
            request = scheduled.request
            mine = self._rows.get(request.index)
            if mine is None or mine.request is not request or mine.preemptions != request.preemptions:
                row = self._row(rows) if mine is None else mine.row
                mine = self._rows[request.index] = _Row(request, row, request.preemptions, 0)
            needed = -(-(scheduled.context + scheduled.tokens) // block_size)
            if needed > mine.known:
                new = request.blocks[mine.known : needed]
                self.host[mine.row, mine.known : needed] = new
                first = mine.row * width + mine.known
                at.append(np.arange(first, first + len(new), dtype=np.int64))
                ids.extend(new)
                mine.known = needed
            numbers.append(mine.row)
        changed = np.concatenate(at) if at else np.empty(0, dtype=np.int64)
        return np.array(numbers, dtype=np.int32), changed, np.array(ids, dtype=np.int32)

    def _row(self, rows: list[Scheduled]) -> int:
        """A free row, or that of somebody who is not in the plan: it has ended, or its blocks are written anew when it is back."""
        if self._free:
            return self._free.pop()
        present = {scheduled.request.index for scheduled in rows}
        for index in [index for index in self._rows if index not in present]:
            self._free.append(self._rows.pop(index).row)
        if not self._free:
            raise InputError(f"{len(rows)} sequences in a step, but max_num_seqs is {len(self.host) - 1}")
        return self._free.pop()
