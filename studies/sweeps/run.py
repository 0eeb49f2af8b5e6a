"""A sweep: every cell of a study simulated once, side by side, kept as it finishes, and resumed by skipping what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError, nearest
from scenarios.schema import Scenario
from studies import frames, workers
from studies.sweeps import cells, study
from studies.sweeps.cells import Cell, Row
from studies.sweeps.store import Folder
from studies.sweeps.study import Study
from studies.workers import Lost

if TYPE_CHECKING:
    import pyarrow as pa

    from studies.sweeps.results import Sweep

Told = Callable[[str], None]
Progress = Callable[[int, int, int], None]
"""Called with how many of this time's cells are done, how many there are, and how many of them failed."""


@dataclass(frozen=True)
class Job:
    """What a worker is given. elsewhere: a worker on another machine, where files may differ."""

    cell: Cell
    key: str
    detailed: bool = False
    elsewhere: bool = False


@dataclass(frozen=True)
class Done:
    """What became of a job. requests: one row a request, where asked for."""

    row: Row
    requests: pa.Table | None = None


@dataclass(frozen=True)
class Plan:
    """Cells of a study with what is known of them before any is run.

    keys: what a cell is kept under, None where its scenario is wrong; refused: why, by place.
    """

    study: Study
    cells: tuple[Cell, ...]
    keys: tuple[str | None, ...]
    refused: Mapping[int, str]


def plan(asked: Study | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()) -> Plan:
    """Looks at the scenario of every cell.

    asked: a study, its file or shipped name, or its fields. overrides: of every point, such as `workload.requests=500`.

    Raises:
        InputError: the study is wrong.
    """
    found = _study(asked)
    if overrides:
        found = found.with_overrides(overrides)
        found.base_scenario()
    chosen = tuple(cells.cells(found))
    keys: list[str | None] = []
    refused = {}
    for place, (cell, scenario) in enumerate(_scenarios(chosen)):
        if isinstance(scenario, InputError):
            keys.append(None)
            refused[place] = str(scenario)
        else:
            keys.append(cell.key_of(scenario))
    return Plan(found, chosen, tuple(keys), refused)


def _scenarios(chosen: Sequence[Cell]) -> Iterator[tuple[Cell, Scenario | InputError]]:
    """Every cell with its scenario, or with why there is none. Those of one point differ by their seed only."""
    last: Cell | None = None
    found: Scenario | InputError = InputError("")
    for cell in chosen:
        if last is None or cell.point is not last.point:
            try:
                found = cell.scenario()
            except InputError as error:
                found = error
        elif isinstance(found, Scenario):
            found = found.model_copy(update={"seed": cell.seed})
        last = cell
        yield cell, found


def sweep(
    asked: Study | Mapping[str, Any] | str | Path,
    *,
    out: Path | str | None = None,
    overrides: Sequence[str] = (),
    processes: int | None = None,
    scheduler: str | None = None,
    detailed: bool = False,
    retry_failed: bool = False,
    allow_bad: bool = False,
    update: bool = False,
    metrics: Sequence[str] = (),
    progress: Progress | None = None,
    tell: Told | None = None,
) -> Sweep:
    """Runs the cells of a study that `out` does not hold yet.

    Args:
        asked: a study, its file or shipped name, or its fields. overrides: of every point.
        out: folder of the sweep (`studies.sweeps.store`); without one nothing is kept on disk.
        processes: of this machine, side by side; all its processors by default; 1: this one. scheduler: of dask.distributed, instead.
        detailed: keep a row of every request as well. retry_failed: run cells again that failed before.
        allow_bad: cells whose scenario is wrong become failed rows, instead of an error. update: the study may have changed.
        metrics: figures that will be looked at, those of the study by default: one that the first cell has not is told at once.
        tell: called with what a reader should know, a sentence.

    Raises:
        InputError: the study is wrong, the folder holds another one's sweep or cannot be written to.
    """
    from studies.sweeps.results import Sweep

    folder = None if out is None else Folder(Path(out))
    if folder is not None:
        folder.check()
    elif detailed:
        raise InputError("rows of requests are written into a folder; give one (out)")
    planned = plan(asked, overrides)
    check(planned, allow_bad)
    with nullcontext() if folder is None else folder.locked():
        if folder is not None:
            folder.begin(planned.study, update=update)
        tell = tell or (lambda _: None)
        kept = {} if folder is None else _kept(folder, planned, detailed, retry_failed, tell)
        jobs = {
            key: Job(cell, key, detailed, scheduler is not None)
            for cell, key in zip(planned.cells, planned.keys, strict=True)
            if key is not None and key not in kept
        }
        rows = dict(kept)
        failed = 0
        if jobs and progress is not None:
            progress(0, len(jobs), 0)
        for done, (key, row) in enumerate(_run(list(jobs.values()), folder, processes, scheduler), 1):
            rows[key] = row
            failed += row["error"] is not None
            if row["error"] is None and done - failed == 1:
                _look_for(metrics or planned.study.metrics, row, tell)
            if progress is not None:
                progress(done, len(jobs), failed)
        ordered = _ordered(planned, rows)
        if folder is not None:
            folder.finish(ordered, planned.study)
    skipped = len(planned.cells) - len(planned.refused) - len(jobs)
    return Sweep(planned.study, tuple(ordered), None if out is None else Path(out), len(jobs), skipped)


def _look_for(metrics: Sequence[str], row: Row, tell: Told) -> None:
    """Tells of figures that a first cell has not: better now than when all have run."""
    for key in (key for key in metrics if key not in row):
        close = nearest(key, row)
        tell(f"metric {key}: the first cell has no such figure" + (f"; did you mean {close}?" if close else ""))


def check(planned: Plan, allow_bad: bool) -> None:
    """Raises InputError if there are cells that cannot be run, unless some are allowed and others are left."""
    bad, total = len(planned.refused), len(planned.cells)
    if not bad or (allow_bad and bad < total):
        return
    place, why = next(iter(planned.refused.items()))
    if total == 1:
        raise InputError(why)
    told = f"{why}. So {bad:,} of {total:,} cells cannot be run, this one of {planned.cells[place].point}"
    way_out = "" if bad == total else "; --allow-bad runs the others, and keeps these as failed rows"
    raise InputError(told + way_out)


def computed(job: Job) -> Done:
    """Simulates a cell. Whatever goes wrong in it is told in its row."""
    if job.elsewhere:
        from studies.sweeps import cluster

        cluster.check_same(job.cell, job.key)
    try:
        if not job.detailed:
            return Done(cells.row(job.cell))
        row, run = cells.run(job.cell)
        return Done(row, None if run is None else frames.requests(run))
    except Exception as error:  # one cell of many: the others are still worth having
        return Done(cells.failed(job.cell, f"{type(error).__name__}: {error}"))


def _kept_here(folder: Folder | None, job: Job) -> Row:
    """The same, and writes it down where it was computed."""
    done = computed(job)
    if folder is not None:
        folder.keep(job.key, done.row, done.requests)
    return done.row


def _run(
    jobs: Sequence[Job], folder: Folder | None, processes: int | None, scheduler: str | None
) -> Iterator[tuple[str, Row]]:
    """Key and row of every job, as each is done and kept."""
    if scheduler is None:
        for place, result in workers.outcomes(partial(_kept_here, folder), jobs, processes):
            if isinstance(result, Lost):
                yield jobs[place].key, _lost(folder, jobs[place], result)
            else:
                yield jobs[place].key, result
        return
    from studies.sweeps import cluster

    for place, done in cluster.each(computed, jobs, scheduler):
        if isinstance(done, Done):
            if folder is not None:
                folder.keep(jobs[place].key, done.row, done.requests)
            yield jobs[place].key, done.row
        else:
            yield jobs[place].key, _lost(folder, jobs[place], done)


def _lost(folder: Folder | None, job: Job, lost: Lost) -> Row:
    row = cells.failed(job.cell, lost.why)
    if folder is not None:
        folder.keep(job.key, row)
    return row


def _kept(folder: Folder, planned: Plan, detailed: bool, retry_failed: bool, tell: Told) -> dict[str, Row]:
    """Rows of cells that need not be run, by key."""
    found: dict[str, Row] = {}
    damaged = []
    for key in dict.fromkeys(key for key in planned.keys if key is not None):
        try:
            row = folder.read(key)
        except InputError as error:
            damaged.append(str(error))
            continue
        if row is None or (row["error"] is not None and retry_failed):
            continue
        if detailed and row["error"] is None and not folder.has_requests(key):
            continue
        found[key] = row
    if damaged:
        more = f", and {len(damaged) - 1:,} more like it" if len(damaged) > 1 else ""
        tell(f"{damaged[0]}{more}: run again")
    return found


def _ordered(planned: Plan, rows: Mapping[str, Row]) -> list[Row]:
    """A row a cell, by point and seed. What a study calls a cell may have changed since it was kept."""
    found = []
    for place, (cell, key) in enumerate(zip(planned.cells, planned.keys, strict=True)):
        row = cells.failed(cell, planned.refused[place]) if key is None else rows[key]
        found.append({**row, **cells.head(cell), "scenario_hash": row["scenario_hash"], "error": row["error"]})
    return found


def _study(asked: Study | Mapping[str, Any] | str | Path) -> Study:
    if isinstance(asked, Study):
        return asked
    return study.from_mapping(asked) if isinstance(asked, Mapping) else study.read(asked)
