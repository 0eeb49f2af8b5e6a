"""The requests of a scenario as columns, drawn before the run so that no policy can change them (law 15)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import chain
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from serving.records import Records, RequestLog, StepLog, gather
from serving.request import Request, Segment, Tags

_FIELDS = Struct("4q")
_AT_ONCE = 1 << 12  # rows that `requests` turns into Python integers at once


class Role(IntEnum):
    """What a segment of a prompt is to the application that wrote it."""

    USER = 0
    SYSTEM = 1
    HISTORY = 2  # what the user said in an earlier turn
    ANSWER = 3  # what the model said in an earlier turn
    TOOL = 4  # the result of a tool call
    TASK = 5  # what an agent told the sub-agent whose prompt this is


@dataclass
class Workload:
    """`n` requests, one row each, in the order in which clients mean to send them.

    arrival_ns: int64 `(n,)`, non-decreasing; -1 where the time is only known in the run (closed loop, later turns).
    prompt_tokens, output_tokens, max_tokens, priority: int64 `(n,)`. `output_tokens` is the true length.
    tenant: int64 `(n,)`, index into `tenants`. session: int64 `(n,)`, -1 for none.
    follows: int64 `(n,)`: the request whose finish this one waits for (the previous turn), -1 for none;
        it is sent `think_ns` later. If that one does not finish, this one is never sent.
    joins: int64 `(m, 2)`, pairs (request, another one whose finish it waits for): it is sent `think_ns` after the last of all, as an
        agent goes on when all its sub-agents are done. None where nobody waits for more than one.
    concurrency: closed loop: so many clients, each sends the next row (without `follows`) when its last one has ended;
        None for an open loop. `think_ns` then is the pause between.
    segment_offset: int64 `(n + 1,)`, segments of request i are keys/tokens [offset[i], offset[i + 1]);
        None where every prompt is a text of its own.
    segment_role: int8 `(segments,)`, a `scenarios.workload.Role` each; None where nobody knows what segments are.
    service_class: int64 `(n,)`, index into `classes`. predicted_tokens: int64 `(n,)`, what the scenario's predictor expects.
    ttft_ns: int64 `(n,)`, limit of time to first token after arrival, -1 for none. difficulty: float64 `(n,)` in [0, 1]. Each None
        where no request has any.
    class_slo: per class its limits in seconds, `{ttft, tpot, e2e}`, or None for the scenario's.
    tries: rows of the records that one request may have: its first try, retries after a time-out, escalations to another model.
        Try k of request i is row `i + k * n`.
    changes: what each transform of the workload changed: its name, requests changed, tokens saved and left, of prompts and answers.
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
    segment_role: NDArray[np.int8] | None = None
    service_class: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ("default",)
    class_slo: tuple[Mapping[str, float | None] | None, ...] = ()
    predicted_tokens: NDArray[np.int64] | None = None
    ttft_ns: NDArray[np.int64] | None = None
    difficulty: NDArray[np.float64] | None = None
    tries: int = 1
    joins: NDArray[np.int64] | None = None
    changes: tuple[Mapping[str, object], ...] = ()

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @cached_property
    def tagged(self) -> bool:
        """Whether requests differ in what policies may know of them beyond their text and limits."""
        columns = (self.service_class, self.predicted_tokens, self.ttft_ns, self.difficulty)
        return len(self.tenants) > 1 or any(column is not None for column in columns)

    def tags(self, i: int) -> Tags:
        """What else is known of request i."""
        return self._tags[i % len(self)]

    @cached_property
    def _tags(self) -> list[Tags]:
        n = len(self)
        absent = Tags()
        columns = [self.tenant.tolist()]
        for name in ("service_class", "predicted_tokens", "ttft_ns", "difficulty"):
            column = getattr(self, name)
            columns.append([getattr(absent, name)] * n if column is None else column.tolist())
        return list(map(Tags, *columns, self.session.tolist()))

    def without(self, i: int) -> Workload:
        """The same requests but for i, which is never sent, and so neither are those that wait for its answer. Everybody else
        keeps row, text and lengths."""
        follows = self.follows.copy()
        follows[i] = i  # it waits for its own answer
        return replace(self, follows=follows)

    def request_log(self) -> RequestLog:
        """Room for the rows of every request and each of its tries."""
        return RequestLog(len(self) * self.tries)

    def records(self, requests: RequestLog, logs: Iterable[StepLog], info: dict[str, object]) -> Records:
        """What a run of this workload left behind, as one: `info` says how it was run."""

        def tiled(column: NDArray[np.int64]) -> NDArray[np.int64]:
            return column if self.tries == 1 else np.tile(column, self.tries)

        records = gather(
            requests,
            logs,
            tiled(self.tenant),
            tiled(self.session),
            self.tenants,
            info,
            None if self.service_class is None else tiled(self.service_class),
            self.classes,
            None if self.tries == 1 else len(self),
        )
        records.class_slo = self.class_slo
        return records

    def prompt(self, i: int) -> tuple[Segment, ...]:
        """Segments of request i, whichever try it is. The answer of request j is quoted as the key `out:j`."""
        i %= len(self)
        if self.segment_offset is None or self.segment_tokens is None:
            return ((i, int(self.prompt_tokens[i])),)
        lo, hi = self.segment_offset[i], self.segment_offset[i + 1]
        return tuple((self.segment_keys[k], int(self.segment_tokens[k])) for k in range(lo, hi))

    def request(self, i: int, arrival_ns: int) -> Request:
        """Request i as sent at `arrival_ns`; from `len(self)` on, another try of request `i % len(self)`: the same text, and the
        same answer."""
        row = i if i < len(self.prompt_tokens) else i % len(self.prompt_tokens)
        tokens, output_tokens, max_tokens, priority = _FIELDS.unpack_from(self._fields, row * _FIELDS.size)
        prompt = ((row, tokens),) if self.segment_offset is None else self.prompt(row)
        key = None if i == row else f"out:{row}"
        request = Request(i, prompt, output_tokens, max_tokens, tokens, arrival_ns, priority, output_key=key)
        if self.tagged:
            request.tags = self._tags[row]
        return request

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
        requests = map(Request, index, prompts, outputs, declared, tokens, arrivals, priorities)
        return self._with_tags(requests) if self.tagged else requests

    def _with_tags(self, requests: Iterator[Request]) -> Iterator[Request]:
        for request in requests:
            request.tags = self._tags[request.index]
            yield request

    @cached_property
    def _fields(self) -> bytes:
        """What a request is made of, a row each: reading a row at once is several times faster than single array elements."""
        columns = (self.prompt_tokens, self.output_tokens, self.max_tokens, self.priority)
        return np.column_stack(columns).astype(np.int64).tobytes()
