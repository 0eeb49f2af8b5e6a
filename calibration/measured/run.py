"""A measured run: requests that somebody sent to a real engine, and how long each took.

Readers build one with `measured`, which refuses what cannot have happened. A simulation of the same requests becomes one
with `as_seen`, so that both sides are summarised by the same code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scenarios.errors import InputError
from scenarios.fields import CENTURY, MOST_TOKENS
from scenarios.recorded import Blocks, RecordedTrace, to_workload
from scenarios.trace_options import TraceOptions
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.metrics import arrays, effective_samples, percentile, samples_needed
from serving.records import Records

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Origin = Literal["intended", "sent", "engine"]
"""Where arrivals were taken: when the client meant to send, when it sent, when the engine saw the request."""

PERCENTILES = (50, 90, 95, 99)
HUGE = 1e300
"""Beyond it, numbers in JSON are taken as infinite: Python's integers need not fit a double."""
SLACK = 1e-6
"""Seconds by which sums of recorded times may disagree: they were rounded one by one."""


@dataclass(frozen=True)
class MeasuredRun:
    """`n` requests that finished, in order of arrival.

    name: of the run. source: where it was read from, for messages and reports.
    arrival_ns: `(n,)`, from the first arrival on. origin: what arrivals are.
    input_tokens, output_tokens: `(n,)`.
    ttft, tpot, e2e: seconds `(n,)`, NaN where absent; TPOT is absent of answers of one token.
    itls: seconds between deliveries, an array a request; None where nobody recorded them.
    hash_ids: chained ids of each prompt's blocks of `block_size` tokens, None where prompts share nothing.
    sent_ns: `(n,)`, when clients sent, from the first on, where arrivals are the engine's and both are known. An engine sees
        requests between steps: a simulation starts from when they were sent, finds out itself when its engine sees them, and
        is compared from there.
    engine: settings that the source states, by the field names of a scenario's engine section (`num_gpu_blocks`, ...).
    stated: whatever else the source says of itself: model, versions, hardware.
    """

    name: str
    source: str
    arrival_ns: Ints
    input_tokens: Ints
    output_tokens: Ints
    ttft: Floats
    tpot: Floats
    e2e: Floats
    origin: Origin
    itls: tuple[Floats, ...] | None = None
    hash_ids: tuple[tuple[int, ...], ...] | None = None
    block_size: int | None = None
    sent_ns: Ints | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    stated: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def rate(self) -> float:
        """Requests that arrived a second: n - 1 gaps from the first arrival to the last; infinite for one burst."""
        span = int(self.arrival_ns[-1]) / 1e9
        return (len(self) - 1) / span if span > 0 else float("inf")

    def take(self, rows: Ints) -> MeasuredRun:
        """The same run with these requests only, `rows` ascending; arrivals count from the first of them."""
        return dataclasses.replace(
            self,
            **{name: getattr(self, name)[rows] for name in _COLUMNS},
            arrival_ns=self.arrival_ns[rows] - self.arrival_ns[rows[0]],
            sent_ns=None if self.sent_ns is None else self.sent_ns[rows] - self.sent_ns[rows[0]],
            itls=None if self.itls is None else tuple(self.itls[i] for i in rows.tolist()),
            hash_ids=None if self.hash_ids is None else tuple(self.hash_ids[i] for i in rows.tolist()),
        )

    def after_ready_check(self) -> MeasuredRun:
        """With one request more, in row 0: the first prompt, sent alone a minute before the run. It has no latencies.

        `vllm bench serve` does so to see whether the server answers; where prefixes are cached the run's first request then
        finds its own prompt.
        """
        again: dict[str, Any] = {
            name: np.concatenate([getattr(self, name)[:1], getattr(self, name)]) for name in _COLUMNS
        }
        for name in ("ttft", "tpot", "e2e"):
            again[name][0] = np.nan
        hash_ids, block_size = self.hash_ids, self.block_size
        if hash_ids is None or block_size is None:
            hash_ids, block_size = ((0,), *(() for _ in range(len(self) - 1))), int(self.input_tokens[0])
        return dataclasses.replace(
            self,
            **again,
            arrival_ns=np.concatenate([[0], self.arrival_ns + _AHEAD_NS]),
            sent_ns=None if self.sent_ns is None else np.concatenate([[0], self.sent_ns + _AHEAD_NS]),
            itls=None if self.itls is None else (np.empty(0), *self.itls),
            hash_ids=(hash_ids[0], *hash_ids),
            block_size=block_size,
        )

    def workload(self, *, spread: float = 1.0) -> Workload:
        """The same requests for a simulation: arrivals, lengths and equal beginnings as they were; answers end where they did.

        Row i of the workload is row i of this run.

        Args:
            spread: factor of the gaps between arrivals; 1.02 offers 2 % less load.
        """
        if not spread > 0:
            raise ValueError(f"spread {spread} must be above 0")
        since = self.arrival_ns if self.sent_ns is None else self.sent_ns
        blocks = None
        if self.hash_ids is not None and self.block_size is not None:
            counts = [len(ids) for ids in self.hash_ids]
            offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            ids = np.fromiter((i for ids in self.hash_ids for i in ids), dtype=np.int64, count=int(offset[-1]))
            blocks = Blocks(offset, ids, self.block_size)
        trace = RecordedTrace(
            Path(self.source),
            since if spread == 1.0 else np.rint(since * spread).astype(np.int64),
            self.input_tokens,
            self.output_tokens,
            np.arange(1, len(self) + 1),
            blocks=blocks,
        )
        # Only a trace that is scaled to fit looks at the engine.
        return to_workload(trace, TraceOptions(), "as_output", EngineConfig(num_gpu_blocks=2))

    def summary(self, percentiles: Sequence[float] = PERCENTILES) -> dict[str, Any]:
        """Metrics under the keys of METRICS: mean, median and percentiles in ms, throughputs per second.

        Percentiles are those of *these requests*, which a simulation replays one by one: unlike a run's own summary, which
        speaks of a population, none is refused. `few` names each that a sample of this size could not carry, and why.
        """
        found: dict[str, Any] = {"completed": len(self)}
        few: dict[str, str] = {}
        for name, values in self._latencies().items():
            if not len(values):
                continue
            found[f"mean_{name}_ms"] = float(values.mean()) * 1e3
            found[f"median_{name}_ms"] = percentile(values, 50) * 1e3
            found[f"std_{name}_ms"] = float(values.std()) * 1e3
            for p in percentiles:
                key, value = f"p{p:g}_{name}_ms", percentile(values, p)
                found[key] = value * 1e3
                needed = samples_needed(p) if p >= 95 else 1
                effective = effective_samples(values > value) if needed > 1 else len(values)
                if effective < needed:
                    few[key] = f"{effective:.0f} effective samples of {len(values):,}; p{p:g} needs {needed}"
        ended = np.isfinite(self.e2e)
        if ended.any():
            duration = float((self.arrival_ns[ended] / 1e9 + self.e2e[ended]).max())
            found["duration"] = duration
            if duration > 0:
                inputs, outputs = int(self.input_tokens[ended].sum()), int(self.output_tokens[ended].sum())
                found["request_throughput"] = int(ended.sum()) / duration
                found["output_throughput"] = outputs / duration
                found["total_token_throughput"] = (inputs + outputs) / duration
        found["few"] = few
        return found

    def _latencies(self) -> dict[str, Floats]:
        found = {"ttft": self.ttft, "tpot": self.tpot, "e2el": self.e2e}
        found = {name: values[np.isfinite(values)] for name, values in found.items()}
        if self.itls is not None:
            found["itl"] = np.concatenate(self.itls) if self.itls else np.empty(0)
        return found


_AHEAD_NS = 60_000_000_000
"""Of a readiness check before the run: long enough for the engine to be idle again."""

_COLUMNS = ("input_tokens", "output_tokens", "ttft", "tpot", "e2e")


def measured(
    name: str,
    source: Path | str,
    *,
    arrival: ArrayLike,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    origin: Origin,
    ttft: ArrayLike | None = None,
    e2e: ArrayLike | None = None,
    tpot: ArrayLike | None = None,
    itls: Sequence[ArrayLike] | None = None,
    hash_ids: Sequence[Sequence[int]] | None = None,
    block_size: int | None = None,
    sent: ArrayLike | None = None,
    rows: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    engine: Mapping[str, Any] | None = None,
    stated: Mapping[str, str] | None = None,
) -> MeasuredRun:
    """Checks columns of requests in any order and sorts them by arrival.

    Args:
        arrival, sent, ttft, e2e, tpot, itls: seconds; arrivals and sendings each from an origin of their own. TPOT follows from
            TTFT and E2E if it is not given.
        rows: how a message names each row (`line 12`), default `request 1`, ...
        columns: how a message names each column, by the names of these arguments; default those names.

    Raises:
        InputError: no request; a value that is missing, not finite, negative, or that cannot have happened beside the others.
    """
    said = dict(columns or {})
    n = len(np.asarray(arrival))
    at = [f"request {i + 1}" for i in range(n)] if rows is None else list(rows)
    check = _Check(str(source), at, said)
    if not n:
        raise InputError(f"{source}: there is not one request in it")
    since = check.seconds("arrival", arrival, low=None)
    tokens = {
        "input_tokens": check.tokens("input_tokens", input_tokens),
        "output_tokens": check.tokens("output_tokens", output_tokens),
    }
    several = tokens["output_tokens"] > 1
    first = np.full(n, np.nan) if ttft is None else check.seconds("ttft", ttft)
    whole = np.full(n, np.nan) if e2e is None else check.seconds("e2e", e2e)
    wrong = first > whole + SLACK
    if wrong.any():
        i = int(np.argmax(wrong))
        raise check.refused(
            i, "ttft", f"{first[i]:g} s", f"at most {check.called('e2e')}, {whole[i]:g} s here, is possible",
            "are both columns in the same unit, and not swapped?",
        )  # fmt: skip
    if tpot is None:
        each = np.where(several, np.maximum(whole - first, 0.0) / np.maximum(tokens["output_tokens"] - 1, 1), np.nan)
    else:
        each = np.where(several, check.seconds("tpot", tpot, absent=~several), np.nan)
        later = each * np.maximum(tokens["output_tokens"] - 1, 1)
        wrong = several & (later > whole * 1.01 + 1e-3)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise check.refused(
                i, "tpot", f"{each[i]:g} s", f"{tokens['output_tokens'][i] - 1} of them are more than {whole[i]:g} s in all",
                "are all columns in the same unit?",
            )  # fmt: skip
    if several.any() and (whole <= first)[several].all():
        i = int(np.argmax(several))
        raise check.refused(
            i, "e2e", f"{whole[i]:g} s, as TTFT in every request", "later tokens take time",
            "the client did not stream; measure with streaming, which tells the first token apart",
        )  # fmt: skip
    gaps = None if itls is None else _gaps(check, itls, first, whole, tokens["output_tokens"])
    order = np.argsort(since, kind="stable")
    # Nanoseconds since 1970 do not fit a double: the origin goes first.
    arrival_ns = np.rint((since - since.min()) * 1e9).astype(np.int64)
    return MeasuredRun(
        name=name,
        source=str(source),
        arrival_ns=arrival_ns[order],
        **{k: v[order] for k, v in tokens.items()},
        ttft=first[order],
        tpot=each[order],
        e2e=whole[order],
        origin=origin,
        itls=None if gaps is None else tuple(gaps[i] for i in order.tolist()),
        hash_ids=None if hash_ids is None else tuple(tuple(hash_ids[i]) for i in order.tolist()),
        block_size=block_size,
        sent_ns=None if sent is None else _sent_ns(check.seconds("sent", sent, low=None)[order]),
        engine=dict(engine or {}),
        stated=dict(stated or {}),
    )


def as_seen(
    records: Records,
    *,
    name: str = "simulated",
    before_ns: int = 0,
    first_ns: int = 0,
    later_ns: int = 0,
    by_engine: bool = False,
) -> MeasuredRun:
    """A simulation's finished requests as a client sees them, rows in order of arrival.

    Args:
        by_engine: counted from when the engine saw each request instead: at once if it was idle, else at the end of the step
            in flight.
        before_ns: from a client's arrival to the engine's.
        first_ns, later_ns: from the end of the step that made a request's first (any later) token to its delivery.
    """
    r, raw = records.requests, arrays(records)
    rows = np.flatnonzero(records.submitted)
    done = np.flatnonzero(records.finished[rows])
    outputs = np.array(raw["output_lens"], dtype=np.int64)[done]
    before, first, later = before_ns / 1e9, first_ns / 1e9, later_ns / 1e9
    unseen = _unseen_ns(records)[rows][done] / 1e9 if by_engine else np.zeros(len(done))
    ttft = np.array(raw["ttfts"])[done] + before + first - unseen
    itls = [np.array(raw["itls"][i], dtype=np.float64) for i in done.tolist()]
    for gaps in itls:
        gaps[:1] = np.maximum(gaps[:1] + (later - first), 0.0)
    return measured(
        name,
        "simulation",
        arrival=r["arrival_ns"][rows][done] / 1e9 + unseen,
        input_tokens=np.array(raw["input_lens"])[done],
        output_tokens=outputs,
        ttft=ttft,
        e2e=np.maximum(np.array(raw["latencies"])[done] + before - unseen + np.where(outputs > 1, later, first), ttft),
        itls=itls,
        origin="sent" if before_ns else "engine",
    )


def _sent_ns(sent: Floats) -> Ints:
    """From the first on; requests that the engine saw in another order were sent together, as far as it matters."""
    found: Ints = np.maximum.accumulate(np.rint((sent - sent.min()) * 1e9).astype(np.int64))
    found -= found[0]
    return found


def _unseen_ns(records: Records) -> Ints:
    """From each request's arrival to the end of the step that its replica was running then; 0 where it was idle."""
    r, steps = records.requests, records.steps
    waits = np.zeros(len(r["arrival_ns"]), dtype=np.int64)
    for replica in np.unique(steps["replica"]):
        mine, its = r["replica"] == replica, steps["replica"] == replica
        start, end, arrival = steps["start_ns"][its], steps["end_ns"][its], r["arrival_ns"][mine]
        last = np.searchsorted(start, arrival, side="left") - 1  # began before it
        waits[mine] = np.where(last >= 0, np.maximum(end[np.maximum(last, 0)] - arrival, 0), 0)
    return waits


class _Check:
    """Columns of one source; its messages name file, row, column, what was found and what is allowed."""

    def __init__(self, source: str, rows: Sequence[str], columns: Mapping[str, str]) -> None:
        self.source, self.rows, self.columns = source, rows, columns

    def called(self, column: str) -> str:
        return self.columns.get(column, column)

    def refused(self, row: int, column: str, found: str, allowed: str, remedy: str = "") -> InputError:
        tail = f"; {remedy}" if remedy else ""
        return InputError(f"{self.source}: {self.rows[row]}: {self.called(column)}: found {found}, but {allowed}{tail}")

    def _column(self, column: str, values: ArrayLike) -> Floats:
        found = np.asarray(values, dtype=np.float64)
        if found.shape != (len(self.rows),):
            raise InputError(
                f"{self.source}: {self.called(column)}: found {len(found)} values for {len(self.rows)} requests; a truncated file?"
            )
        return found

    def seconds(
        self, column: str, values: ArrayLike, *, low: float | None = 0.0, absent: NDArray[np.bool_] | None = None
    ) -> Floats:
        """Finite seconds, none below `low`, none above a century; rows that may be `absent` are not looked at."""
        found = self._column(column, values)
        looked = np.ones(len(found), dtype=bool) if absent is None else ~absent
        wrong = looked & ~np.isfinite(found)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise self.refused(
                i, column, str(found[i]), "a finite number of seconds is needed", "leave requests out that did not finish"
            )  # fmt: skip
        if low is not None and (looked & (found < low)).any():
            i = int(np.argmax(looked & (found < low)))
            raise self.refused(i, column, f"{found[i]:g} s", "no time is negative")
        if low is not None and (looked & (found > CENTURY)).any():
            i = int(np.argmax(looked & (found > CENTURY)))
            raise self.refused(i, column, f"{found[i]:g} s", "a century is the most", "is the unit right?")
        if low is None and float(np.ptp(found)) > CENTURY:
            i = int(np.argmax(found))
            raise self.refused(
                i, column, f"{found[i]:g} s", f"the first is at {found.min():g} s, over a century before", "is the unit right?"
            )  # fmt: skip
        return found

    def tokens(self, column: str, values: ArrayLike) -> Ints:
        found = self._column(column, values)
        wrong = ~((found >= 1) & (found <= MOST_TOKENS) & (found == np.floor(found)))
        if wrong.any():
            i = int(np.argmax(wrong))
            shown = f"{found[i]:g}"
            raise self.refused(
                i, column, shown, "a whole number of tokens above 0 is needed", "leave requests out that failed"
            )  # fmt: skip
        return found.astype(np.int64)


def _gaps(check: _Check, itls: Sequence[ArrayLike], ttft: Floats, e2e: Floats, tokens: Ints) -> list[Floats]:
    """Gaps of each request: finite, none negative, at most one a token after the first, within its E2E."""
    found = [np.asarray(gaps, dtype=np.float64) for gaps in itls]
    if len(found) != len(tokens):
        raise InputError(
            f"{check.source}: {check.called('itls')}: found {len(found)} lists for {len(tokens)} requests; a truncated file?"
        )
    for i, gaps in enumerate(found):
        if len(gaps) and not (np.isfinite(gaps) & (gaps >= 0)).all():
            bad = gaps[~(np.isfinite(gaps) & (gaps >= 0))][0]
            raise check.refused(i, "itls", f"{bad:g} s", "gaps are finite and not negative")
        if len(gaps) > max(int(tokens[i]) - 1, 0):
            raise check.refused(i, "itls", f"{len(gaps)} gaps", f"{tokens[i]} tokens have at most {tokens[i] - 1}")
        if np.isfinite(e2e[i]) and float(gaps.sum()) + ttft[i] > e2e[i] * 1.01 + 1e-3:
            raise check.refused(
                i, "itls", f"{gaps.sum():g} s in all after {ttft[i]:g} s", f"the request took {e2e[i]:g} s",
                "are all columns in one unit?",
            )  # fmt: skip
    return found
