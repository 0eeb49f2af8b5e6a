"""How long clients wait, and what they do when they are sent away or have waited too long."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Sends = list[tuple[int, int]]


@dataclass(frozen=True)
class Patience:
    """What the clients of a workload of n requests do.

    first_token_ns: a client leaves when no token has come so long after it sent. answer_ns: or when its answer is not complete.
        None for never.
    waits_ns: int64 `(n, retries)`: pause before each further try of each request, drawn before the run.
    retries_refused: whether a refused request is sent again too, or only one that was given up or timed out.
    """

    first_token_ns: int | None = None
    answer_ns: int | None = None
    waits_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    retries_refused: bool = True

    @property
    def retries(self) -> int:
        return int(self.waits_ns.shape[1])


class Retries:
    """Who tries again, and when; try k of request i is row `i + k * n`. It has no clock of its own."""

    def __init__(self, patience: Patience, n: int) -> None:
        self.patience = patience
        self.n = n
        self.used: dict[int, int] = {}

    def after(self, index: int, now: int, refused: bool) -> Sends:
        """What is sent because row `index` got no answer at `now`: nothing if its client does not try again."""
        row, patience = index % self.n, self.patience
        used = self.used.get(row, 0)
        if used >= patience.retries or (refused and not patience.retries_refused):
            return []
        self.used[row] = used + 1
        return [(index + self.n, now + int(patience.waits_ns[row, used]))]
