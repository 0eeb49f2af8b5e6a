"""Rows of a sweep as an Arrow table. A column's type follows from its name and from the study, never from which cells failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

COUNTS = frozenset(
    {
        "point",
        "seed",
        "submitted",
        "tries",
        "completed",
        "failed",
        "rejected",
        "timed_out",
        "aborted",
        "in_flight",
        "never_sent",
        "preemptions",
        "total_input_tokens",
        "total_output_tokens",
        "max_concurrent_requests",
        "steps",
        "itl_reconstructed_requests",
        "kv_capacity_tokens",
        "kv_capacity_tokens_low",
        "kv_capacity_tokens_high",
        "kv_capacity_requests",
        "devices",
        "judged",
        "escalated",
        "spec_decode_num_drafts",
        "spec_decode_draft_tokens",
        "spec_decode_accepted_tokens",
        "kv_swap_out_blocks",
        "kv_swap_in_blocks",
        "kv_offload_blocks",
        "kv_fetch_blocks",
    }
)
"""Figures that are whole numbers, by the last part of their names."""
TEXTS = frozenset(["scenario_hash", "error", "binding.cause"])


def table(rows: Sequence[Mapping[str, Any]], axes: Mapping[str, Sequence[Any]] | None = None) -> pa.Table:
    """A row each, in their order; null where one has no such figure.

    axes: of each axis all values in the study. Where they are of several kinds, or no plain ones, the column holds each as JSON
    text.
    """
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        known = (axes or {}).get(name.removeprefix("axis."), values)
        kind = kind_of(known) if name.startswith("axis.") else _figure(name, values)
        if kind == "json":
            values = [None if v is None else json.dumps(v, sort_keys=True) for v in values]
        arrow = {
            "count": pa.int64(),
            "number": pa.float64(),
            "flag": pa.bool_(),
            "text": pa.string(),
            "json": pa.string(),
        }
        columns[name] = pa.array(values, type=arrow[kind])
    return pa.table(columns)


def kind_of(values: Sequence[Any]) -> str:
    """What all of these are: count, number, flag or text; json where they are not of one kind."""
    found = {type(value) for value in values if value is not None}
    if found <= {int, float} and all(not isinstance(v, int) or abs(v) < 2**53 for v in values if v is not None):
        return "count" if found == {int} else "number"
    return {bool: "flag", str: "text"}.get(found.pop(), "json") if len(found) == 1 else "json"


def _figure(name: str, values: Sequence[Any]) -> str:
    kind = "text" if name in TEXTS else "count" if name.rpartition(".")[2] in COUNTS else "number"
    allowed = {"text": (str,), "count": (int,), "number": (int, float)}[kind]
    fits = all(v is None or (isinstance(v, allowed) and not isinstance(v, bool)) for v in values)
    return kind if fits else "json"
