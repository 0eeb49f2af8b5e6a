"""The requests of a scenario as columns, drawn before the run so that no policy can change them (law 15)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from serving.request import Request, Segment

_FIELDS = Struct("4q")
_AT_ONCE = 1 << 12  # rows that `requests` turns into Python integers at once


@dataclass
class Workload:
    """`n` requests, one row each, in the order in which clients mean to send them.

    arrival_ns: int64 `(n,)`, non-decreasing; -1 where the time is only known in the run (closed loop, later turns).
    prompt_tokens, output_tokens, max_tokens, priority: int64 `(n,)`. `output_tokens` is the true length.
    tenant: int64 `(n,)`, index into `tenants`. session: int64 `(n,)`, -1 for none.
    follows: int64 `(n,)`: the request whose finish this one waits for (the previous turn), -1 for none;
        it is sent `think_ns` later. If that one does not finish, this one is never sent.
    concurrency: closed loop: so many clients, each sends the next row (without `follows`) when its last one has ended;
        None for an open loop. `think_ns` then is the pause between.
    segment_offset: int64 `(n + 1,)`, segments of request i are keys/tokens [offset[i], offset[i + 1]);
        None where every prompt is a text of its own.
    """

    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    max_tokens: NDArray[np.int64]
    priority: NDArray[np.int64]
    tenant: NDArray[np.int64]
    session: NDArray[np.int64]
    follows: NDArray[np.int64]
    think_ns: NDArray[np.int64]
    tenants: tuple[str, ...] = ("default",)
    concurrency: int | None = None
    segment_offset: NDArray[np.int64] | None = None
    segment_keys: Sequence[Hashable] = ()
    segment_tokens: NDArray[np.int64] | None = None
    source: str = ""

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def prompt(self, i: int) -> tuple[Segment, ...]:
        """Segments of request i. The answer of request j is quoted as the key `out:j`."""
        if self.segment_offset is None or self.segment_tokens is None:
            return ((i, int(self.prompt_tokens[i])),)
        lo, hi = self.segment_offset[i], self.segment_offset[i + 1]
        return tuple((self.segment_keys[k], int(self.segment_tokens[k])) for k in range(lo, hi))

    def request(self, i: int, arrival_ns: int) -> Request:
        """Request i as sent at `arrival_ns`."""
        tokens, output_tokens, max_tokens, priority = _FIELDS.unpack_from(self._fields, i * _FIELDS.size)
        prompt = ((i, tokens),) if self.segment_offset is None else self.prompt(i)
        return Request(i, prompt, output_tokens, max_tokens, tokens, arrival_ns, priority)

    def requests(self, rows: NDArray[np.int64]) -> Iterator[Request]:
        """Requests `rows`, each as sent at its `arrival_ns` and made when it is asked for.

        Several times faster than `request`, because the loop over rows is not Python's.
        """
        return chain.from_iterable(self._some(rows[k : k + _AT_ONCE]) for k in range(0, len(rows), _AT_ONCE))

    def _some(self, rows: NDArray[np.int64]) -> Iterator[Request]:
        index, tokens = rows.tolist(), self.prompt_tokens[rows].tolist()
        prompts: Iterator[tuple[Segment, ...]]
        # (A zip of one iterator makes tuples of one.)
        prompts = (
            zip(zip(index, tokens, strict=True), strict=True)
            if self.segment_offset is None
            else map(self.prompt, index)
        )
        columns = (self.arrival_ns, self.priority)
        arrivals, priorities = (column[rows].tolist() for column in columns)
        outputs, declared = self.output_tokens[rows].tolist(), self.max_tokens[rows].tolist()
        return map(Request, index, prompts, outputs, declared, tokens, arrivals, priorities)

    @cached_property
    def _fields(self) -> bytes:
        """What a request is made of, a row each: reading a row at once is several times faster than single array elements."""
        columns = (self.prompt_tokens, self.output_tokens, self.max_tokens, self.priority)
        return np.column_stack(columns).astype(np.int64).tobytes()
