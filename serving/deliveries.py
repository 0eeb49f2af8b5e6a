"""When each token left the engine, recovered from the step log: no run stores an object per token.

Where the engine speculates, the rows that gave tokens are logged, and times are what they were. Elsewhere:

A running request gets a token in every step of its replica that decodes, from its first token to its last. So the times
follow from three numbers a request (first token, finish, tokens) and the ends of the decode steps, and are *exact* for
every request whose count agrees. Two kinds do not: preempted ones pause, and ones that a small token budget skipped.
Of the first, tokens before the pause are exact, those after it are placed as late as they can be, in the last steps
before the finish (exact for one preemption of a mixed batch, one longer stall for several); of the second, tokens are spread
evenly. `Deliveries.reconstructed` counts requests that are not exact.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serving.records import DRAFT_COLUMNS, Records
from serving.tries import answered

Column = NDArray[np.int64]


class TokenTimes(Protocol):
    """Token times of the finished requests of a run.

    Attributes:
        reconstructed: finished requests whose times are an estimate, not exact.
    """

    reconstructed: int

    def times(self, i: int) -> Column:
        """Times of the tokens of finished request i in ns, shape `(output_tokens,)`."""

    def gaps_of(self, i: int) -> Column:
        """Gaps in ns between the deliveries to finished request i; several tokens may be one delivery."""

    def gaps(self) -> tuple[Column, Column]:
        """Gaps between consecutive deliveries, pooled over finished requests: `(gap_ns, how often)`, equally long."""


def token_times(records: Records) -> TokenTimes:
    """Token times of a run, however they are known."""
    return LoggedDeliveries(records) if len(records.drafts) else Deliveries(records)


class LoggedDeliveries:
    """Token times of a run in which every row that gave tokens was logged: one delivery a row."""

    reconstructed = 0

    def __init__(self, records: Records) -> None:
        rows = records.drafts[np.argsort(records.drafts[:, _REQUEST], kind="stable")]  # steps stay in order
        steps = records.steps
        ends = np.zeros(len(rows), dtype=np.int64)
        for replica in np.unique(rows[:, _REPLICA]):
            mine = rows[:, _REPLICA] == replica
            ends[mine] = steps["end_ns"][steps["replica"] == replica][rows[mine, _STEP]]  # a step's number is its row
        self._ends, self._tokens = ends, rows[:, _ACCEPTED] + 1
        self._request = rows[:, _REQUEST]
        self._n = records.requests["output_tokens"]
        self._first = np.searchsorted(self._request, np.arange(len(self._n) + 1))
        self._finished = answered(records)

    def times(self, i: int) -> Column:
        """Times of the tokens of finished request i in ns, shape `(output_tokens,)`."""
        mine = slice(self._first[i], self._first[i + 1])
        times: Column = np.repeat(self._ends[mine], self._tokens[mine])[: self._n[i]]  # an answer may end within a row
        return times

    def gaps_of(self, i: int) -> Column:
        """Gaps in ns between the deliveries to finished request i; several tokens may be one delivery."""
        gaps: Column = np.diff(self._ends[self._first[i] : self._first[i + 1]])
        return gaps

    def gaps(self) -> tuple[Column, Column]:
        """Gaps between consecutive deliveries, pooled over finished requests: `(gap_ns, how often)`, equally long."""
        same = (np.diff(self._request) == 0) & self._finished[self._request[1:]]
        values: Column = np.diff(self._ends)[same]
        return values, np.ones(len(values), dtype=np.int64)


_REPLICA, _STEP, _REQUEST, _ACCEPTED = (
    DRAFT_COLUMNS.index(name) for name in ("replica", "step", "request", "accepted")
)


class _Clock:
    """Ends of one replica's steps: those that decode, and all of them."""

    def __init__(self, steps: dict[str, Column], rows: Column) -> None:
        self.step = steps["step"][rows]
        self.end = steps["end_ns"][rows]
        decodes = steps["decode_sequences"][rows] > 0
        self.decode_end = self.end[decodes]
        self.sampling_end = self.end[steps["sampled"][rows] > 0]

    def begin_of(self, step: int) -> int:
        """Number of decode steps that come before scheduler step `step`."""
        row = int(np.searchsorted(self.step, step))
        before = int(self.end[row - 1]) if row else -1
        return int(np.searchsorted(self.decode_end, before, side="right"))


class Deliveries:
    """Token times of the finished requests of a run whose engine gives every decode one token a step.

    Attributes:
        reconstructed: finished requests whose times are an estimate (see the module), not exact.
    """

    def __init__(self, records: Records) -> None:
        self._r = records.requests
        self._finished = np.flatnonzero(answered(records) & (self._r["output_tokens"] > 0))
        replicas = records.steps["replica"]
        self._clocks = {int(k): _Clock(records.steps, np.flatnonzero(replicas == k)) for k in np.unique(replicas)}
        n = len(self._r["status"])
        self._lo = np.zeros(n, dtype=np.int64)  # first decode step (position among them) after the first token
        self._hi = np.zeros(n, dtype=np.int64)  # one behind the decode step of the last token
        for k, clock in self._clocks.items():
            rows = self._finished[self._r["replica"][self._finished] == k]
            self._lo[rows] = np.searchsorted(clock.decode_end, self._r["first_token_ns"][rows], side="right")
            self._hi[rows] = np.searchsorted(clock.decode_end, self._r["finish_ns"][rows], side="right")
        exact = self._hi - self._lo == self._r["output_tokens"] - 1
        # Before its first token a preemption moves no delivery.
        self._pauses: dict[int, int] = {}
        for replica, step, i in records.preempted.tolist():
            if i not in self._pauses and replica in self._clocks and self._r["first_token_ns"][i] >= 0:
                begin = self._clocks[replica].begin_of(step)
                if begin >= self._lo[i]:
                    self._pauses[i] = begin
        exact[list(self._pauses)] = False
        self._exact = exact
        odd = self._finished[~exact[self._finished]]
        self.reconstructed = int(
            sum(1 for i in odd.tolist() if self._r["preemptions"][i] != 1 or i not in self._pauses)
        )

    def times(self, i: int) -> Column:
        """Times of the tokens of finished request i in ns, shape `(output_tokens,)`."""
        first, n = int(self._r["first_token_ns"][i]), int(self._r["output_tokens"][i])
        if n < 1 or first < 0:
            return np.empty(0, dtype=np.int64)
        clock = self._clocks.get(int(self._r["replica"][i]))
        if clock is None:  # requests alone were recorded
            return np.linspace(first, int(self._r["finish_ns"][i]), n).astype(np.int64)
        lo, hi = int(self._lo[i]), int(self._hi[i])
        if self._exact[i]:
            return np.concatenate([[first], clock.decode_end[lo:hi]]).astype(np.int64)
        if i in self._pauses:
            before = min(self._pauses[i] - lo, n - 2)
            late = clock.decode_end[hi - (n - 2 - before) : hi]  # all but the token that ends the recomputed prefill
            bound = int(late[0]) if len(late) else int(self._r["finish_ns"][i]) + 1
            resume = int(np.searchsorted(clock.sampling_end, bound)) - 1
            if len(late) == n - 2 - before and resume >= 0:
                times = np.concatenate(
                    [[first], clock.decode_end[lo : lo + before], [clock.sampling_end[resume]], late]
                )
                # Preempted again, its last token may have ended a recomputed prefill.
                if (np.diff(times) > 0).all() and times[-1] == self._r["finish_ns"][i]:
                    return times.astype(np.int64)
        return np.linspace(first, int(self._r["finish_ns"][i]), n).astype(np.int64)

    def gaps_of(self, i: int) -> Column:
        """Gaps in ns between the tokens of finished request i."""
        return np.diff(self.times(i))

    def gaps(self) -> tuple[Column, Column]:
        """Gaps between consecutive deliveries, pooled over finished requests: `(gap_ns, how often)`, equally long.

        Cost grows with steps and requests, not with tokens: requests that decode side by side share their gaps.
        """
        values: list[Column] = []
        counts: list[Column] = []
        several = self._finished[self._r["output_tokens"][self._finished] > 1]
        for k, clock in self._clocks.items():
            rows = several[(self._r["replica"][several] == k) & self._exact[several]]
            if not len(rows):
                continue
            lo, hi = self._lo[rows], self._hi[rows]
            values.append(clock.decode_end[lo] - self._r["first_token_ns"][rows])
            counts.append(np.ones(len(rows), dtype=np.int64))
            # A request takes part in the gaps (lo, lo + 1), ..., (hi - 2, hi - 1).
            change = np.zeros(len(clock.decode_end) + 1, dtype=np.int64)
            np.add.at(change, lo + 1, 1)
            np.add.at(change, hi, -1)
            values.append(np.diff(clock.decode_end))
            counts.append(np.cumsum(change)[1:-1])
        for i in several[~self._exact[several]].tolist():
            gap = np.diff(self.times(i))
            values.append(gap)
            counts.append(np.ones(len(gap), dtype=np.int64))
        if not values:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        value, count = np.concatenate(values), np.concatenate(counts)
        return value[count > 0], count[count > 0]
