"""Who sends what next: the clients of a workload, whichever clock they live on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scenarios.workload import Workload

Sends = list[tuple[int, int]]
"""Rows of the workload with the time in ns at which each is meant to be sent."""


class Clients:
    """Answers what becomes due when an answer is complete; it has no clock of its own.

    opening: rows that wait for nobody's answer, int64, in the order in which they are sent.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.opening: NDArray[np.int64] = np.flatnonzero(workload.follows < 0)
        self._followers: dict[int, list[int]] = {}
        for row in np.flatnonzero(workload.follows >= 0).tolist():
            self._followers.setdefault(int(workload.follows[row]), []).append(row)
        self._awaited: dict[int, int] = {}  # answers that rows with several predecessors still wait for
        for row, other in () if workload.joins is None else workload.joins.tolist():
            self._followers.setdefault(other, []).append(row)
            self._awaited[row] = self._awaited.get(row, 1) + 1
        # A closed loop sends them one by one as its clients become free.
        self._next: Iterator[int] = iter(self.opening.tolist())

    @property
    def react(self) -> bool:
        """Whether anything is sent because of an answer."""
        return self.workload.concurrency is not None or bool(self._followers)

    def first(self) -> Sends:
        """What is sent before any answer: a whole open loop, or one row a client of a closed one, at once."""
        if self.workload.concurrency is None:
            return list(zip(self.opening.tolist(), self.workload.arrival_ns[self.opening].tolist(), strict=True))
        return [(next(self._next), 0) for _ in range(min(self.workload.concurrency, len(self.opening)))]

    def answered(self, row: int, now: int) -> Sends:
        """The answer to `row` is complete at `now`: later turns follow it, and a closed loop's client goes on."""
        think_ns = self.workload.think_ns
        turns = [(turn, now + int(think_ns[turn])) for turn in self._followers.pop(row, ()) if self._free(turn)]
        return turns + self.gave_up(now)

    def _free(self, turn: int) -> bool:
        """One of the answers that `turn` waits for is there: whether it was the last."""
        if turn not in self._awaited:
            return True
        self._awaited[turn] -= 1
        return not self._awaited[turn]

    def gave_up(self, now: int) -> Sends:
        """A request ended without an answer: no turn follows it, but a closed loop's client goes on."""
        row = None if self.workload.concurrency is None else next(self._next, None)
        return [] if row is None else [(row, now + int(self.workload.think_ns[row]))]
