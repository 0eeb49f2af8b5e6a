"""A finished run in memory and as a folder that holds all there is to know about it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.errors import InputError, one_message
from scenarios.workload import Workload
from serving.metrics import SLO, by_request
from serving.records import (
    DRAFT_COLUMNS,
    LATER_REQUEST_COLUMNS,
    MOVE_COLUMNS,
    REQUEST_COLUMNS,
    STEP_COLUMNS,
    STEP_DRAFT_COLUMNS,
    Records,
)
from serving.row_log import CHUNK_COLUMNS
from studies.reports import files
from studies.reports.limits import NOT_MODELLED
from studies.reports.strict_json import dumps
from studies.workload_files import save_workload

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from scenarios.schema import Scenario
    from serving.economics import Account
    from sim.cost import CostModel

FORMAT_VERSION = 1
FILES = frozenset(
    [f"{name}.parquet" for name in ("requests", "steps", "events", "rows", "drafts", "workload", "segments")]
    + [
        "scenario.yaml",
        "run.json",
        "result.json",
        "validation.json",
        "record.json",
        "profile.json",
        "report.html",
        "executed.html",
    ]
)
EVENTS = ("visible", "preempted", "aborted")
EVENT_COLUMNS = ("kind", "replica", "step", "request")
LATENCY_COLUMNS = ("ttft", "tpot")
"""Figures of each request in seconds, written for readers of requests.parquet; null where there is none. They follow from the
other columns, and are not read back."""


class _Info(BaseModel):
    """What readers of run.json rely on; there is more in it."""

    model_config = ConfigDict(extra="allow", strict=True)

    name: str
    way: Literal["simulate", "execute"]
    clock: str
    replicas: Annotated[int, Field(ge=1)]
    router: str
    engine: dict[str, int | float | bool | str | list[Any]]
    slo: dict[str, float | int | None]
    percentiles: list[float | int]
    versions: dict[str, str]
    objectives: list[dict[str, Any]]
    binding: dict[str, Any]
    tenants: list[str]
    records: dict[str, Any]


@dataclass
class Run:
    """A run with what it was worth.

    info: JSON-able: name, way (`simulate` or `execute`), clock, seed, engine, slo, versions, hashes, binding.
    summary: `serving.metrics.summary`. scenario and cost are None for a run that was loaded from a folder.
    scenario_text: the scenario as it was written, of a run that was loaded.
    account: what each request costs, where prices are stated. workload: what was sent, so that a saved run can be replayed wherever its folder is.
    """

    records: Records
    summary: dict[str, Any]
    info: dict[str, Any]
    scenario_text: str = ""
    scenario: Scenario | None = None
    cost: CostModel | None = field(default=None, repr=False)
    workload: Workload | None = field(default=None, repr=False)
    account: Account | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return str(self.info.get("name", "run"))

    @property
    def slo(self) -> SLO:
        """What every request is promised, in seconds."""
        stated = self.info.get("slo") or {}
        return SimpleNamespace(**{name: stated.get(name) for name in ("ttft", "tpot", "e2e")})

    @property
    def scenario_yaml(self) -> str:
        """The scenario as a file."""
        return self.scenario_text or ("" if self.scenario is None else self.scenario.to_yaml())

    def requests(self) -> pa.Table:
        """One row a request: `studies.frames.REQUESTS` says what its columns are."""
        from studies import frames

        return frames.requests(self)

    def steps(self) -> pa.Table:
        """One row an engine step: columns `studies.frames.STEPS`."""
        from studies import frames

        return frames.steps(self)

    def frame(self, what: Literal["requests", "steps"] = "requests") -> pd.DataFrame:
        """`requests()` or `steps()` for pandas.

        Raises:
            InputError: pandas is not installed.
        """
        from studies import frames

        return frames.frame(self, what)

    def _repr_html_(self) -> str:
        """What a notebook shows: headline figures and what binds."""
        from studies.notebook import html_of

        return html_of(self)

    def __repr__(self) -> str:
        way = "executed" if self.info.get("way") == "execute" else "simulated"
        shown = {key: self.summary.get(key) for key in ("mean_ttft_ms", "mean_tpot_ms", "output_throughput")}
        figures = ", ".join(f"{key}={value:.4g}" for key, value in shown.items() if value is not None)
        return f"<Run {self.name!r}: {way}, {self.summary.get('completed', 0)} requests completed; {figures}>"


def save(
    run: Run, folder: Path | str, *, extra: Mapping[str, Any] | None = None, texts: Mapping[str, str] | None = None
) -> Path:
    """Writes a result folder: complete or not at all. An older result at this place is replaced, anything else is kept.

    Files: requests.parquet, steps.parquet, events.parquet, rows.parquet (and drafts.parquet where the engine speculates),
    workload.parquet (and segments.parquet where prompts share text), scenario.yaml, run.json (`info`) and result.json (the summary under the names of vLLM's benchmark, and `extra`); `texts` are more files by name, a report for instance.

    Raises:
        InputError: the folder holds something that is not a result.
    """
    folder = Path(folder)
    check_target(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(run, part, extra or {})
        for name, text in (texts or {}).items():
            (part / name).write_text(text, encoding="utf-8", errors="replace")
        os.chmod(part, 0o755)
        replace(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return folder


def _is_ours(name: str) -> bool:
    """Whether a result may hold a file of that name."""
    return name in FILES or re.fullmatch(r"profile-\d+\.json", name) is not None


def check_target(folder: Path | str) -> None:
    """Raises InputError if a result cannot be written to `folder`, or would destroy something else there."""
    files.check_folder(Path(folder), "a result", _is_ours, replaced=True)


def folder_for(name: str, out: Path | None, save: bool = False) -> Path | None:
    """Where the result of a run goes, checked before any work: `out`, or a folder of its name where results are saved; else None."""
    if out is None and not save:
        return None
    folder = out if out is not None else Path("out") / file_name(name)
    check_target(folder)
    return folder


def replace(part: Path, folder: Path) -> None:
    """Puts a complete folder in the place of an older one."""
    old = folder.with_name(f".{folder.name}.old-{os.getpid()}")
    if folder.exists():
        folder.rename(old)
    part.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _write(run: Run, part: Path, extra: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    r = run.records
    requests = {name: r.requests[name] for name in REQUEST_COLUMNS} | {"tenant": r.tenant, "session": r.session}
    if r.service_class is not None:
        requests["service_class"] = r.service_class
    if r.judged_ns is not None:
        requests["judged_ns"] = r.judged_ns
    none = np.zeros(len(r.steps["step"]), dtype=np.int64)
    steps = {name: r.steps.get(name, none) for name in (*STEP_COLUMNS, *MOVE_COLUMNS)}
    latencies = {
        name: pa.array(by_request(r, name), from_pandas=True) for name in LATENCY_COLUMNS
    }  # null where undefined
    chunks = dict(zip(CHUNK_COLUMNS, r.chunks.T.copy(), strict=True))
    if run.account is not None:
        latencies["usd"] = pa.array(run.account.usd)  # of device time, without idle time
    for file, columns, more in (("requests", requests, latencies), ("steps", steps, {}), ("rows", chunks, {})):
        # Counters and times: differences are half as large as what dictionaries make of them, and quicker.
        encoding = dict.fromkeys(columns, "DELTA_BINARY_PACKED")
        packed = {"use_dictionary": False, "column_encoding": encoding, "compression": "zstd"}
        pq.write_table(pa.table(columns | more), part / f"{file}.parquet", **packed)
    rows = np.concatenate([getattr(r, kind) for kind in EVENTS])
    kind = np.repeat(np.arange(len(EVENTS)), [len(getattr(r, kind)) for kind in EVENTS])
    events = {"kind": kind, "replica": rows[:, 0], "step": rows[:, 1], "request": rows[:, 2]}
    pq.write_table(pa.table(events), part / "events.parquet", compression="zstd")
    if len(r.drafts):
        drafts = dict(zip(DRAFT_COLUMNS, r.drafts.T.copy(), strict=True))
        pq.write_table(pa.table(drafts), part / "drafts.parquet", compression="zstd")
    if run.workload is not None:
        save_workload(run.workload, part)
    (part / "scenario.yaml").write_text(run.scenario_yaml, encoding="utf-8", errors="replace")
    info = {"format_version": FORMAT_VERSION, **run.info, "tenants": list(r.tenants), "records": r.info}
    info |= {"classes": list(r.classes), "class_slo": list(r.class_slo), "first_tries": r.first_tries}
    (part / "run.json").write_text(dumps(info) + "\n", encoding="utf-8")
    (part / "result.json").write_text(dumps({**document(run), **extra}) + "\n", encoding="utf-8")


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
    try:
        _Info.model_validate(info)
    except ValidationError as error:
        inside, problem = one_message(error, info)
        raise InputError(f"{folder / 'run.json'}: {inside}: {problem}") from None
    requests, steps, events = (table(f"{name}.parquet") for name in ("requests", "steps", "events"))
    for column in (*STEP_DRAFT_COLUMNS, *MOVE_COLUMNS):  # results of before there were any
        steps.setdefault(column, np.zeros(len(steps.get("step", ())), dtype=np.int64))
    for column, absent in LATER_REQUEST_COLUMNS.items():
        requests.setdefault(column, np.full(len(requests.get("status", ())), absent, dtype=np.int64))
    # Drafts are written where the engine speculates; rows are by nobody before they were logged.
    drafts, chunks = (
        table(f"{name}.parquet")
        if (folder / f"{name}.parquet").is_file()
        else {column: np.empty(0, dtype=np.int64) for column in columns}
        for name, columns in (("drafts", DRAFT_COLUMNS), ("rows", CHUNK_COLUMNS))
    )
    for name, columns, wanted in (
        ("requests", requests, (*REQUEST_COLUMNS, "tenant", "session")),
        ("steps", steps, (*STEP_COLUMNS, *MOVE_COLUMNS)),
        ("events", events, EVENT_COLUMNS),
        ("drafts", drafts, DRAFT_COLUMNS),
        ("rows", chunks, CHUNK_COLUMNS),
    ):
        missing = [column for column in wanted if column not in columns]
        if missing:
            raise InputError(f"{folder / name}.parquet: column {missing[0]} is missing")
    rows = np.column_stack([events[name] for name in EVENT_COLUMNS[1:]]).astype(np.int64).reshape(-1, 3)
    visible, preempted, aborted = (rows[events["kind"] == k] for k in range(len(EVENTS)))
    records = Records(
        {name: requests[name] for name in REQUEST_COLUMNS},
        {name: steps[name] for name in (*STEP_COLUMNS, *MOVE_COLUMNS)},
        visible,
        preempted,
        aborted,
        requests["tenant"],
        requests["session"],
        tuple(info.pop("tenants")),
        info.pop("records"),
        np.column_stack([drafts[name] for name in DRAFT_COLUMNS]).astype(np.int64),
        requests.get("service_class"),
        tuple(info.pop("classes", ("default",))),
        info.pop("first_tries", None),
        class_slo=tuple(info.pop("class_slo", ())),
        chunks=np.column_stack([chunks[name] for name in CHUNK_COLUMNS]).astype(np.int64),
    )
    records.judged_ns = requests.get("judged_ns")
    summary = document("result.json")
    for key in ("completed", "duration", "refused"):
        if key not in summary:
            raise InputError(f"{folder / 'result.json'}: {key} is missing")
    text = folder / "scenario.yaml"
    return Run(records, summary, info, text.read_text("utf-8", errors="replace") if text.is_file() else "")


def document(run: Run) -> dict[str, Any]:
    """The summary under the names of vLLM's benchmark, and what was run; None where a figure is refused."""
    about = {
        "backend": "servetwin",
        "model_id": run.info.get("model"),
        "num_prompts": len(run.records.requests["status"]),
    }
    names = (
        "name",
        "way",
        "clock",
        "device",
        "seed",
        "scenario_hash",
        "profile_hash",
        "profile",
        "cost",
        "versions",
        "workload",
        "objectives",
        "binding",
        "economics",
        "steady_state",
    )
    ran = {name: run.info.get(name) for name in names}
    ran |= {name: run.info[name] for name in ("pools", "router_options", "judge") if name in run.info}
    return {**about, **run.summary, "run": ran, "not_modelled": list(NOT_MODELLED)}


def file_name(name: str) -> str:
    """A scenario's name as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
