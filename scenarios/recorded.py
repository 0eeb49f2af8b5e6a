"""A recorded trace in columns, and how it becomes a workload: cut, sped up, scaled, its prefixes kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.errors import InputError
from scenarios.fields import CENTURY
from scenarios.trace_options import TraceOptions
from scenarios.workload import Workload
from serving.config import EngineConfig

Ints = NDArray[np.int64]
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class Blocks:
    """Hashes of a trace's prompts: row i has ids [offset[i], offset[i + 1]), each for up to `tokens` tokens of text.

    An id names its block *and all that came before* (chained), so equal ids mean equal text up to there.
    """

    offset: Ints
    ids: Ints
    tokens: int

    def take(self, rows: Ints) -> Blocks:
        counts = np.diff(self.offset)[rows]
        offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        inside = np.arange(offset[-1]) - np.repeat(offset[:-1], counts)
        return Blocks(offset, self.ids[np.repeat(self.offset[rows], counts) + inside], self.tokens)


@dataclass
class RecordedTrace:
    """What a reader found: times in ns from any origin, tokens, and the line of each row for messages."""

    path: Path
    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    lines: Ints
    tenant: Ints | None = None
    tenants: tuple[str, ...] = ("default",)
    blocks: Blocks | None = None
    service_class: Ints | None = None
    classes: tuple[str, ...] = ("default",)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    def take(self, rows: Ints) -> RecordedTrace:
        """The same trace with these rows, in this order."""
        return RecordedTrace(
            self.path,
            self.arrival_ns[rows],
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            self.lines[rows],
            None if self.tenant is None else self.tenant[rows],
            self.tenants,
            None if self.blocks is None else self.blocks.take(rows),
            None if self.service_class is None else self.service_class[rows],
            self.classes,
        )


def nanoseconds(times: NDArray[np.float64] | Ints, unit: str, path: Path) -> Ints:
    """Times of a trace, from its earliest on. The origin goes first: seconds since 1970 times 1e9 leave no digits."""
    since = times - times.min()
    span = float(times.max()) - float(times.min())  # of whole numbers, `since` may have wrapped around
    if not span * (_NS[unit] / 1e9) <= CENTURY:
        raise InputError(f"{path}: its times span more than a hundred years in {unit}; is the time unit right?")
    times_ns: Ints = np.rint(since * float(_NS[unit])).astype(np.int64)
    return times_ns


def to_workload(
    trace: RecordedTrace, options: TraceOptions, max_tokens: int | Literal["as_output"], config: EngineConfig
) -> Workload:
    """The requests of a trace in order of arrival, the first at time 0.

    Rows without output (failed requests in most traces) or without input cannot be replayed: they are dropped, and
    `source` says how many and where. Rows too long for the engine stay: the run rejects them.

    Raises:
        InputError: nothing is left.
    """
    total = len(trace)
    dropped = []
    for column, what in ((trace.output_tokens, "output"), (trace.prompt_tokens, "input")):
        lines = trace.lines[column == 0]
        if len(lines):
            shown = ", ".join(map(str, lines[:5].tolist())) + (", ..." if len(lines) > 5 else "")
            dropped.append(f"{len(lines)} without {what} tokens (line{'s' if len(lines) > 1 else ''} {shown})")
    usable = np.flatnonzero((trace.output_tokens > 0) & (trace.prompt_tokens > 0))
    if not len(usable):
        raise InputError(f"{trace.path}: not one of its {total} rows has both input and output tokens")
    order = usable[np.argsort(trace.arrival_ns[usable], kind="stable")][: options.limit]
    trace = trace.take(order)
    since = trace.arrival_ns - trace.arrival_ns[0]
    arrival = since if options.speedup == 1.0 else np.rint(since / options.speedup).astype(np.int64)
    declared = None if max_tokens == "as_output" else max_tokens
    factor = _factor(trace, options, declared, config)
    prompt, output = _scaled(trace.prompt_tokens, factor), _scaled(trace.output_tokens, factor)
    n = len(trace)
    nobody = np.full(n, -1, dtype=np.int64)
    nothing = np.zeros(n, dtype=np.int64)
    workload = Workload(
        arrival_ns=arrival,
        prompt_tokens=prompt,
        output_tokens=output,
        max_tokens=output.copy() if declared is None else np.full(n, declared, dtype=np.int64),
        priority=nothing,
        tenant=nothing.copy() if trace.tenant is None else trace.tenant,
        session=nobody,
        follows=nobody.copy(),
        think_ns=nothing.copy(),
        tenants=trace.tenants,
        service_class=trace.service_class,
        classes=trace.classes,
        source=_describe(trace, total, options, factor, dropped),
    )
    if trace.blocks is not None:
        quote(workload, trace.blocks, trace.prompt_tokens, factor)
    return workload


def _factor(trace: RecordedTrace, options: TraceOptions, declared: int | None, config: EngineConfig) -> float:
    """What lengths are multiplied by; `fit` never stretches."""
    if options.length_scale != "fit":
        return float(options.length_scale)
    room = min(config.max_model_len, config.usable_blocks * config.block_size + 1)
    if declared is None:
        return min(1.0, room / int((trace.prompt_tokens + trace.output_tokens).max()))
    if declared >= room:
        raise InputError(f"workload.max_tokens: found {declared}, but window and KV memory hold {room} tokens in all")
    return min(1.0, (room - declared) / int(trace.prompt_tokens.max()))


def _scaled(tokens: Ints, factor: float) -> Ints:
    if factor == 1.0:
        return tokens.copy()
    scaled: Ints = np.maximum(np.floor(tokens * factor), 1).astype(np.int64)
    return scaled


def quote(workload: Workload, blocks: Blocks, prompt_tokens: Ints, factor: float) -> None:
    """Writes the prompts' segments: a hash id a block, the rest of a prompt as text of its own.

    Borders are scaled rather than blocks, so that prompts with equal beginnings still agree on them.
    """
    n = len(prompt_tokens)
    counts = np.diff(blocks.offset) + 1  # one more for the rest, which may be empty
    row = np.repeat(np.arange(n), counts)
    offset = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    inside = np.arange(offset[-1]) - offset[row]
    last = inside == counts[row] - 1
    end = np.minimum((inside + 1) * blocks.tokens, prompt_tokens[row])
    end = np.floor(end * factor).astype(np.int64)
    end[last] = workload.prompt_tokens
    start = np.concatenate([[0], end[:-1]])
    start[inside == 0] = 0
    tokens = end - start
    ids, codes = np.unique(blocks.ids, return_inverse=True)
    keys = np.empty(len(row), dtype=object)
    keys[~last] = np.array([f"h:{i}" for i in ids.tolist()], dtype=object)[codes] if len(ids) else []
    keys[last] = [f"p{i}" for i in range(n)]
    kept = tokens > 0
    workload.segment_keys = keys[kept].tolist()
    workload.segment_tokens = tokens[kept]
    workload.segment_offset = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=n))]).astype(np.int64)


def _describe(trace: RecordedTrace, total: int, options: TraceOptions, factor: float, dropped: list[str]) -> str:
    parts = [f"{trace.path.name}: {len(trace):,} of {total:,} requests"]
    if options.speedup != 1.0:
        parts.append(f"{options.speedup:g} times as fast")
    if factor != 1.0:
        parts.append(f"lengths x {factor:.4g}")
    if dropped:
        parts.append("dropped " + " and ".join(dropped))
    return ", ".join(parts)
