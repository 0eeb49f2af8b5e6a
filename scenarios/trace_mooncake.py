"""Reading Mooncake's JSONL traces: lengths, and a hash for each block of a prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import InputError
from scenarios.fields import MOST_TOKENS
from scenarios.json_lines import json_rows
from scenarios.recorded import Blocks, Ints, RecordedTrace, nanoseconds
from scenarios.trace_options import TraceOptions

_BLOCK_SIZES = (512, 16, 64, 128, 256, 32)
"""Tried in this order when the block size is not given: Mooncake's own (last block partial), vLLM's (full blocks)."""


def read_mooncake(text: str, path: Path, options: TraceOptions) -> RecordedTrace:
    """Rows `{timestamp, input_length, output_length, hash_ids}`; times are ms unless `time_unit` says otherwise.

    `hash_ids` are chained. There is one for each block begun (Mooncake: 512 tokens) or for each full block (16 tokens in
    traces made for vLLM); what no hash covers is text of the request's own. Without hashes every prompt is its own text.
    """
    rows, lines = json_rows(text, path)

    def column(name: str, good: Callable[[Any], bool], allowed: str) -> list[Any]:
        values = [row.get(name) for row in rows]
        if not all(map(good, values)):
            at = next(i for i, value in enumerate(values) if not good(value))
            found = "nothing" if name not in rows[at] else repr(values[at])
            raise InputError(f"{path}: line {lines[at]}: {name}: found {found[:60]}, but {allowed} is needed")
        return values

    times = np.array(column("timestamp", _is_time, "a finite number"), dtype=np.float64)
    prompt = np.array(column("input_length", _is_count, "a whole number, 0 or more,"), dtype=np.int64)
    output = np.array(column("output_length", _is_count, "a whole number, 0 or more,"), dtype=np.int64)
    arrival = nanoseconds(times, options.time_unit or "ms", path)
    trace = RecordedTrace(path, arrival, prompt, output, lines)
    if any("hash_ids" in row for row in rows):
        hashes = column("hash_ids", _is_ids, "a list of whole numbers")
        offset = np.concatenate([[0], np.cumsum([len(ids) for ids in hashes])]).astype(np.int64)
        ids = np.fromiter((i for ids in hashes for i in ids), dtype=np.int64, count=int(offset[-1]))
        trace.blocks = Blocks(offset, ids, _block_tokens(offset, prompt, lines, path, options.block_tokens))
    return trace


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e18  # false for NaN


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_TOKENS


def _is_ids(value: Any) -> bool:
    return type(value) is list and all(type(i) is int and abs(i) < 2**63 for i in value)


def _block_tokens(offset: Ints, prompt: Ints, lines: Ints, path: Path, given: int | None) -> int:
    """Tokens of a block, such that every row has a hash for each block begun, or every row one for each full block."""
    counts = np.diff(offset)

    def wrong(size: int) -> tuple[Ints, Ints]:
        return np.flatnonzero(counts != -(-prompt // size)), np.flatnonzero(counts != prompt // size)

    sizes = (given,) if given is not None else _BLOCK_SIZES
    tried = [wrong(size) for size in sizes]
    for size, (begun, full) in zip(sizes, tried, strict=True):
        if not len(begun) or not len(full):
            return size
    # The size that explains most rows is the one meant: name the first row that it does not explain.
    size, (begun, full) = min(zip(sizes, tried, strict=True), key=lambda t: min(len(t[1][0]), len(t[1][1])))
    at = int((begun if len(begun) <= len(full) else full)[0])
    tip = "" if given is not None else "; set workload.trace.block_tokens if blocks have another size"
    raise InputError(
        f"{path}: line {lines[at]}: hash_ids: found {counts[at]} for {prompt[at]} tokens, but blocks of {size} tokens "
        f"give {prompt[at] // size} full or {-(-prompt[at] // size)} begun ones{tip}"
    )
