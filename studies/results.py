"""A finished run in memory and as a folder that holds all there is to know about it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scenarios.errors import InputError
from serving.records import REQUEST_COLUMNS, STEP_COLUMNS, Records

if TYPE_CHECKING:
    from scenarios import Scenario
    from sim.cost import CostModel

FORMAT_VERSION = 1
EVENTS = ("visible", "preempted", "aborted")


@dataclass
class Run:
    """A run with what it was worth.

    info: JSON-able: name, way (`simulate` or `execute`), clock, seed, engine, slo, versions, hashes, binding, notes.
    summary: `serving.metrics.summary`. scenario and cost are None for a run that was loaded from a folder.
    """

    records: Records
    summary: dict[str, Any]
    info: dict[str, Any]
    scenario_yaml: str = ""
    scenario: Scenario | None = None
    cost: CostModel | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return str(self.info.get("name", "run"))


def save(run: Run, folder: Path | str, *, extra: dict[str, Any] | None = None) -> Path:
    """Writes a result folder: complete or not at all. An older result at this place is replaced, anything else is kept.

    Files: requests.parquet, steps.parquet, events.parquet, scenario.yaml, run.json (`info`) and result.json
    (the summary under the names of vLLM's benchmark, and `extra`).

    Raises:
        InputError: the folder holds something that is not a result.
    """
    folder = Path(folder)
    check_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(run, part, extra or {})
        os.chmod(part, 0o755)
        replace(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


def check_target(folder: Path | str) -> None:
    """Raises InputError if writing a result to `folder` would destroy something else."""
    folder = Path(folder)
    if folder.is_file():
        raise InputError(f"{folder}: a file, but a result is a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "run.json").is_file():
        raise InputError(f"{folder}: holds other files and no run.json; give a new or an empty folder to --out")


def replace(part: Path, folder: Path) -> None:
    """Puts a complete folder in the place of an older one."""
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _write(run: Run, part: Path, extra: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    r = run.records
    requests = {name: r.requests[name] for name in REQUEST_COLUMNS} | {"tenant": r.tenant, "session": r.session}
    pq.write_table(pa.table(requests), part / "requests.parquet", compression="zstd")
    pq.write_table(pa.table({name: r.steps[name] for name in STEP_COLUMNS}), part / "steps.parquet", compression="zstd")
    rows = np.concatenate([getattr(r, kind) for kind in EVENTS])
    kind = np.repeat(np.arange(len(EVENTS)), [len(getattr(r, kind)) for kind in EVENTS])
    events = {"kind": kind, "replica": rows[:, 0], "step": rows[:, 1], "request": rows[:, 2]}
    pq.write_table(pa.table(events), part / "events.parquet", compression="zstd")
    (part / "scenario.yaml").write_text(run.scenario_yaml, encoding="utf-8")
    info = {"format_version": FORMAT_VERSION, **run.info, "tenants": list(r.tenants), "records": r.info}
    (part / "run.json").write_text(dumps(info) + "\n", encoding="utf-8")
    result = {"backend": "servetwin", "model_id": run.info.get("model"), "num_prompts": len(r.requests["status"])}
    (part / "result.json").write_text(dumps(result | run.summary | extra) + "\n", encoding="utf-8")


def load(folder: Path | str) -> Run:
    """Reads a result folder.

    Raises:
        InputError: a file is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder}: no result folder (it has no run.json)")

    def table(name: str) -> dict[str, Any]:
        try:
            found = pq.read_table(folder / name)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{folder / name}: cannot be read: {str(error).splitlines()[0]}") from None
        return {column: found[column].to_numpy() for column in found.column_names}

    def document(name: str) -> dict[str, Any]:
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{folder / name}: cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise InputError(f"{folder / name}: found {type(found).__name__}, allowed: a JSON object")
        return found

    info = document("run.json")
    if info.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{folder / 'run.json'}: format_version: found {info.get('format_version')}, allowed: {FORMAT_VERSION}"
        )
    requests, steps, events = (table(f"{name}.parquet") for name in ("requests", "steps", "events"))
    for name, columns, wanted in (("requests", requests, REQUEST_COLUMNS), ("steps", steps, STEP_COLUMNS)):
        missing = [column for column in wanted if column not in columns]
        if missing:
            raise InputError(f"{folder / name}.parquet: column {missing[0]} is missing")
    rows = np.column_stack([events[name] for name in ("replica", "step", "request")]).astype(np.int64).reshape(-1, 3)
    visible, preempted, aborted = (rows[events["kind"] == k] for k in range(len(EVENTS)))
    records = Records(
        {name: requests[name] for name in REQUEST_COLUMNS},
        {name: steps[name] for name in STEP_COLUMNS},
        visible,
        preempted,
        aborted,
        requests["tenant"],
        requests["session"],
        tuple(info.pop("tenants")),
        info.pop("records"),
    )
    text = folder / "scenario.yaml"
    return Run(records, document("result.json"), info, text.read_text(encoding="utf-8") if text.is_file() else "")


def dumps(value: Any) -> str:
    """Strict JSON: numpy numbers are unpacked, NaN and infinity are refused."""
    return json.dumps(value, indent=1, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
