"""An engine's own step log, which counts requests and tokens of each iteration but not their contexts.

Contexts are reconstructed by replaying the counts, first come, first served:

1. Prompts have `input_tokens` tokens (given, or the commonest tokens a prompt of iterations below the token budget). A prompt
   that did not end goes on first in the next iteration that has prompts; then new prompts start, each taking all of its
   tokens but the last, which takes what is left. What is left of it waits only where the iteration is at its budget.
2. Prompts that are short of tokens otherwise found their beginning in the prefix cache; among several, the first did.
3. Where fewer requests decode than could, the oldest have finished. Each decode adds a token to its context.
4. Requests that were there before the first row have unknown contexts, and rows with one of them are left out. So are rows
   whose counts these rules cannot explain; their prompts count as ended, with the usual length.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scenarios.documents import read_text
from scenarios.errors import InputError
from scenarios.trace_csv import CsvTable
from serving.plan import StepShape

Ints = NDArray[np.int64]

COLUMNS = ("iteration", "prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens", "elapsed_ms")
_ROWS = re.compile(r"(\d{0,18}):(\d{0,18})")
_ITERATION = re.compile(
    r"Iteration\((?P<iteration>\d+)\): (?P<prefill_requests>\d+) context requests, (?P<prefill_tokens>\d+) context tokens, "
    r"(?P<decode_requests>\d+) generation requests, (?P<decode_tokens>\d+) generation tokens, "
    r"iteration elapsed time: (?P<elapsed_ms>[\d.]+) ms(?P<dummy> \(dummy\))?"
)


@dataclass(frozen=True)
class IterationLog:
    """Columns `(n,)`, one row an iteration with work, in order. elapsed_ns: what the engine says it took."""

    source: str
    iteration: Ints
    prefill_requests: Ints
    prefill_tokens: Ints
    decode_requests: Ints
    elapsed_ns: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.iteration)

    def take(self, rows: str) -> IterationLog:
        """Iterations `from:to` by number, `to` excluded; either may be missing.

        Raises:
            InputError: another form, or nothing is left.
        """
        found = _ROWS.fullmatch(rows.strip())
        if found is None or not rows.strip(":"):
            raise InputError(
                f"rows of {self.source}: found {rows[:40]!r}, but FROM:TO is needed, such as 6219: or :6219"
            )
        low = int(found[1]) if found[1] else 0
        high = int(found[2]) if found[2] else int(self.iteration[-1]) + 1
        kept = (self.iteration >= low) & (self.iteration < high)
        if not kept.any():
            raise InputError(
                f"rows of {self.source}: found {rows}, but the log has iterations {self.iteration[0]} to {self.iteration[-1]}"
            )
        return replace(self, **{f.name: getattr(self, f.name)[kept] for f in fields(self)[1:]})

    def hash(self) -> str:
        """Short hash of the rows."""
        table = np.column_stack([getattr(self, f.name) for f in fields(self)[1:]])
        return hashlib.sha256(np.ascontiguousarray(table, dtype=np.float64).tobytes()).hexdigest()[:16]


def read_iterations(path: Path | str) -> IterationLog:
    """A table `iteration, prefill_requests, prefill_tokens, decode_requests, decode_tokens, elapsed_ms`, or the log of a vLLM
    server that was started with --enable-logging-iteration-details; plain or gzip.

    Raises:
        InputError: names the file, the line, the column, what was found and what is allowed.
    """
    path = Path(path)
    text = read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty; a header {','.join(COLUMNS)} is needed")
    if "Iteration(" in text:
        text = _from_server_log(text, path)
    table = CsvTable(text, path)
    if missing := [name for name in COLUMNS if name not in table.header]:
        raise InputError(
            f"{path}: line 1: no column {', '.join(missing)}; found {', '.join(table.header)}, but a step log has "
            f"{', '.join(COLUMNS)}"
        )
    counts = {name: table.counts(name) for name in COLUMNS[:-1]}
    elapsed = np.asarray(table.numbers("elapsed_ms"), dtype=np.float64)
    if (elapsed <= 0).any():
        raise table.refuse("elapsed_ms", lambda v: float(v) <= 0, "a duration above 0")
    if (counts["decode_tokens"] != counts["decode_requests"]).any():
        at = int(np.argmax(counts["decode_tokens"] != counts["decode_requests"]))
        raise InputError(
            f"{path}: line {table.lines[at]}: decode_tokens: found {counts['decode_tokens'][at]} of "
            f"{counts['decode_requests'][at]} decodes, but one each is needed: drafts are not understood here"
        )
    if (np.diff(counts["iteration"]) <= 0).any():
        at = int(np.argmax(np.diff(counts["iteration"]) <= 0)) + 1
        raise InputError(
            f"{path}: line {table.lines[at]}: iteration: found {counts['iteration'][at]} after {counts['iteration'][at - 1]}, "
            f"but numbers grow; one engine's log is needed"
        )
    some = counts["prefill_tokens"] + counts["decode_requests"] > 0
    if not some.any():
        raise InputError(
            f"{path}: prefill_tokens, decode_requests: 0 in every iteration; a log of a server that had work is needed"
        )
    return IterationLog(
        str(path),
        iteration=counts["iteration"][some],
        prefill_requests=counts["prefill_requests"][some],
        prefill_tokens=counts["prefill_tokens"][some],
        decode_requests=counts["decode_requests"][some],
        elapsed_ns=elapsed[some] * 1e6,
    )


def _from_server_log(text: str, path: Path) -> str:
    """The table of a server's log: a row for each line that tells an iteration, blank ones for the others. The header stands in
    the place of the first line, so that line numbers stay those of the file, unless that is an iteration already."""
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        found = _ITERATION.search(line)
        if found is None and "Iteration(" in line:
            raise InputError(
                f"{path}: line {number}: found {line.strip()[:120]!r}, which is no iteration as vLLM logs it"
            )
        rows.append("" if found is None or found["dummy"] else ",".join(found.group(*COLUMNS)))
    return "\n".join([",".join(COLUMNS), *(rows if rows[0] else rows[1:])])


def shapes(
    log: IterationLog, *, input_tokens: int | None = None, budget: int | None = None, block_size: int = 16
) -> list[StepShape | None]:
    """The shape of each row by the rules above; None where they cannot tell it.

    Args:
        budget: `max_num_batched_tokens`; if not given, the most tokens that a row has.
        block_size: of the prefix cache.
    """
    totals = log.prefill_tokens + log.decode_requests
    budget = int(totals.max()) if budget is None else budget
    length = _usual_prompt(log, totals < budget) if input_tokens is None else input_tokens
    replay = _Replay(length, budget, block_size)
    columns = (log.prefill_requests, log.prefill_tokens, log.decode_requests)
    return [replay.row(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


class _Replay:
    """Who runs with which context; None for those whose beginning nobody saw."""

    def __init__(self, length: int, budget: int, block_size: int) -> None:
        self.length, self.budget, self.block_size = length, budget, block_size
        self.running: list[int | None] = []  # oldest first
        self.begun = 0  # tokens of the prompt that did not end

    def row(self, prompts: int, tokens: int, decodes: int) -> StepShape | None:
        surplus = len(self.running) - decodes
        nobody: list[int | None] = [None] * -surplus
        self.running = self.running[surplus:] if surplus >= 0 else nobody + self.running
        chunks, ended = self._chunks(prompts, tokens, at_budget=tokens + decodes >= self.budget)
        known = [context for context in self.running if context is not None]
        shape = None
        if len(known) == decodes and chunks is not None:
            shape = StepShape(tuple(chunks), decodes, sum(known), max(known, default=0), decodes + len(ended))
        self.running = [None if context is None else context + 1 for context in self.running]
        self.running += ended if chunks is not None else [self.length] * prompts
        return shape

    def _chunks(self, prompts: int, tokens: int, at_budget: bool) -> tuple[list[tuple[int, int]] | None, list[int]]:
        """(query, context) of each chunk, and the lengths of prompts that end; no chunks where the counts make no sense."""
        chunks, ended = [], []
        if self.begun and prompts:
            query = min(self.length - self.begun, tokens)
            chunks.append((query, self.begun))
            tokens, prompts = tokens - query, prompts - 1
            self.begun += query
            if self.begun >= self.length:
                ended.append(self.length)
                self.begun = 0
        cached = 0
        if prompts > 1 and tokens <= (prompts - 1) * self.length:
            short = (prompts - 1) * self.length + 1 - tokens
            cached = -(-short // self.block_size) * self.block_size
        for left in range(prompts, 0, -1):
            query = tokens if left == 1 else self.length - cached
            context, cached = cached, 0
            if left == 1 and query + context < self.length:
                if at_budget:
                    self.begun = query + context
                else:
                    context = self.length - query
            if query < 1:
                self.begun = 0
                return None, []
            chunks.append((query, context))
            tokens -= query
            if not self.begun:
                ended.append(query + context)
        return (None, []) if tokens else (chunks, ended)


def _usual_prompt(log: IterationLog, below: NDArray[np.bool_]) -> int:
    """Commonest tokens a prompt of iterations below the budget, the larger of two as common."""
    some = below & (log.prefill_requests > 0)
    each = [t // p for t, p in zip(log.prefill_tokens[some], log.prefill_requests[some], strict=True) if t % p == 0]
    if not each:
        raise InputError(f"{log.source}: no row shows how long prompts are; say it (input_tokens)")
    common = Counter(int(t) for t in each)
    return max(common, key=lambda t: (common[t], t))
