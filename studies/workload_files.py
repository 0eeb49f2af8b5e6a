"""What a run was sent, as files of its folder: so that it can be replayed wherever the folder is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import InputError
from scenarios.workload import Workload
from studies.reports.strict_json import plain

COLUMNS = (
    "arrival_ns",
    "prompt_tokens",
    "output_tokens",
    "max_tokens",
    "priority",
    "tenant",
    "session",
    "follows",
    "think_ns",
)
OPTIONAL_COLUMNS = ("service_class", "predicted_tokens", "ttft_ns", "difficulty")
FACTS = ("tenants", "classes", "class_slo", "concurrency", "tries", "source", "changes")


def save_workload(workload: Workload, folder: Path) -> None:
    """Writes workload.parquet, and segments.parquet where prompts share text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {name: getattr(workload, name) for name in COLUMNS}
    for name in OPTIONAL_COLUMNS:
        if (column := getattr(workload, name)) is not None:
            columns[name] = column
    if workload.segment_offset is not None:
        columns["segments"] = np.diff(workload.segment_offset)
        # Only equality of keys matters: those that are not text already are written as text.
        keys = [key if isinstance(key, str) else f"#{key!r}" for key in workload.segment_keys]
        described = {"key": pa.array(keys).dictionary_encode(), "tokens": workload.segment_tokens}
        if workload.segment_role is not None:
            described["role"] = workload.segment_role
        segments = pa.table(described)
        pq.write_table(segments, folder / "segments.parquet", compression="zstd")
    about = {name: getattr(workload, name) for name in FACTS}
    about["joins"] = None if workload.joins is None else workload.joins.tolist()
    table = pa.table(columns).replace_schema_metadata({"servetwin": json.dumps(about, default=plain)})
    pq.write_table(table, folder / "workload.parquet", compression="zstd")


def load_workload(folder: Path | str) -> Workload:
    """What a saved run was sent.

    Raises:
        InputError: the folder has none, or it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    try:
        table = pq.read_table(folder / "workload.parquet")
        about = json.loads(table.schema.metadata[b"servetwin"])
        columns = {name: table[name].to_numpy() for name in COLUMNS}
        columns |= {name: table[name].to_numpy() for name in OPTIONAL_COLUMNS if name in table.column_names}
        offset = keys = tokens = role = None
        if "segments" in table.column_names:
            offset = np.concatenate([[0], np.cumsum(table["segments"].to_numpy())]).astype(np.int64)
            segments = pq.read_table(folder / "segments.parquet")
            keys, tokens = segments["key"].to_pylist(), segments["tokens"].to_numpy()
            role = segments["role"].to_numpy() if "role" in segments.column_names else None
        joins = None if about.get("joins") is None else np.array(about["joins"], dtype=np.int64).reshape(-1, 2)
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{folder}: its workload cannot be read: {str(error).splitlines()[0]}") from None
    return Workload(
        **columns,
        tenants=tuple(about["tenants"]),
        concurrency=about["concurrency"],
        segment_offset=offset,
        segment_keys=keys or (),
        segment_tokens=tokens,
        source=about["source"],
        segment_role=role,
        classes=tuple(about.get("classes", ("default",))),
        class_slo=tuple(about.get("class_slo", ())),
        tries=about.get("tries", 1),
        joins=joins,
        changes=tuple(about.get("changes", ())),
    )
