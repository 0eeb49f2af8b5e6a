"""A run that tells how far it is: the deployment of `sim.deployment`, with a look at its requests now and then.

Half of a request's share is that it has been sent, half that it has ended. Where answers are awaited before anything is sent, time
counts too if the run has a horizon: whichever is further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.request import Request
from sim.deployment import Deployment

Tell = Callable[[float], None]
"""Called with the part of a run that is done, 0 to 1, never falling. What it raises ends the run."""

_STEP = 0.01
_MILLISECOND = 1_000_000


class TellingDeployment(Deployment):
    """The same run, which calls `tell` about a hundred times at most."""

    def __init__(self, tell: Tell, *args: Any) -> None:
        super().__init__(*args)
        self.tell = tell
        self.told = 0.0
        self.sent = self.looked = 0
        self.expected = len(self.workload)
        self.every = max(1, self.expected // 100)

    def _asked(self, rows: NDArray[np.int64]) -> Iterator[Request]:
        self.expected = max(1, len(rows))
        every = max(1, len(rows) // 100)
        for start in range(0, len(rows), every):
            part = rows[start : start + every]
            yield from super()._asked(part)
            self.sent += len(part)
            self._look()

    def send(self, i: int, now: int) -> None:
        super().send(i, now)
        self.sent += 1
        self._count(now)

    def react(self, request: Request, now: int) -> None:
        super().react(request, now)
        self._count(now)

    def _advance(self, end: int) -> None:
        """Slice by slice, each so long that a few of a hundred requests end in it: every slice ends the leaps of its replicas."""
        now = int(self.env.now) if self.observed else self._last_arrival()
        length, few = _MILLISECOND, self.expected / 40
        while now < end and any(replica.has_work or replica.ends is not None for replica in self.replicas):
            now, before = min(now + length, end), self._alive
            super()._advance(now)
            ended = before - self._alive
            length = length * 2 if ended < few else max(1, length // 2) if ended > 4 * few else length
            self._look()
        super()._advance(end)

    def _last_arrival(self) -> int:
        return int(self.workload.arrival_ns.max(initial=0))

    @property
    def _alive(self) -> int:
        return len(self.inside) + sum(replica.outstanding for replica in self.replicas)

    def _count(self, now: int) -> None:
        self.looked += 1
        if self.looked % self.every == 0:
            self._look(now)

    def _look(self, now: int = 0) -> None:
        done = (self.sent - self._alive / 2) / self.expected
        if self.horizon_ns is not None:
            done = max(done, now / self.horizon_ns)
        if self.told + _STEP <= done < 1.0:
            self.told = done
            self.tell(done)
