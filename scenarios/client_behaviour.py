"""How long clients wait, and what they do when they are sent away or have waited too long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Duration, PositiveDuration, Section

MOST_RETRIES = 20
Sends = list[tuple[int, int]]


class ClientBehaviour(Section):
    """When clients leave, and whether they come back.

    Args:
        first_token_timeout: a client leaves when no token has come for so long after it sent.
        timeout: or when its answer is not complete for so long.
        retries: further tries of a request that got no answer, each with its own limits.
        backoff: pause before the first of them; backoff_factor times as long before each next one, `backoff_max` at most.
        jitter: share by which a pause is drawn longer or shorter (0.5: between half and one and a half of it).
        retry_refused: whether a request that was turned away is sent again too, not only one that timed out.
    """

    first_token_timeout: PositiveDuration | None = None
    timeout: PositiveDuration | None = None
    retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = 0
    backoff: Duration = 1.0
    backoff_factor: Annotated[float, Field(ge=1, le=100)] = 2.0
    backoff_max: PositiveDuration = 60.0
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.5
    retry_refused: bool = True

    @model_validator(mode="after")
    def _agrees(self) -> ClientBehaviour:
        first, whole = self.first_token_timeout, self.timeout
        if first is not None and whole is not None and first >= whole:
            raise misplaced(
                "must be shorter than timeout: a whole answer never comes before its first token", "first_token_timeout"
            )
        if not self.retries:
            if not self.impatient:
                raise misplaced(
                    "found no time-out and no retries: clients wait for ever as it is; leave it out", "timeout"
                )
            for name in ("backoff", "backoff_factor", "backoff_max", "jitter", "retry_refused"):
                if name in self.model_fields_set:
                    raise misplaced("found without retries; give their number (retries: 3), or leave it out", name)
        elif self.backoff > self.backoff_max:
            raise misplaced("must not be longer than backoff_max", "backoff")
        return self

    @property
    def impatient(self) -> bool:
        return self.first_token_timeout is not None or self.timeout is not None

    def patience(self, n: int, streams: Callable[[str], Generator]) -> Patience:
        """Of the clients of n requests, their pauses drawn."""
        first = self.backoff * self.backoff_factor ** np.arange(self.retries)
        drawn = 1.0 + self.jitter * (2.0 * streams("retries").random((n, self.retries)) - 1.0)
        waits = np.rint(np.minimum(first, self.backoff_max) * drawn * 1e9).astype(np.int64)
        return Patience(_ns(self.first_token_timeout), _ns(self.timeout), waits, self.retry_refused)


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


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
