"""Columns of requests that somebody measured, checked: what is missing, in another unit or cannot have happened is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.measured.run import Floats, Ints, MeasuredRun, Origin
from scenarios.errors import InputError
from scenarios.fields import CENTURY, MOST_TOKENS

HUGE = 1e300
"""Beyond it, numbers in JSON are taken as infinite: Python's integers need not fit a double."""
SLACK = 1e-6
"""Seconds by which sums of recorded times may disagree: they were rounded one by one."""


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


def _sent_ns(sent: Floats) -> Ints:
    """From the first on; requests that the engine saw in another order were sent together, as far as it matters."""
    found: Ints = np.maximum.accumulate(np.rint((sent - sent.min()) * 1e9).astype(np.int64))
    found -= found[0]
    return found


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
