"""Studies and runs that the workspace holds: which ones, and how far each is. Nothing here needs Streamlit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from dashboard import workspace
from scenarios.errors import InputError
from studies.sweeps.store import Folder

SWEEP, RUN = "study", "run"
_KINDS = {SWEEP: ("study.yaml", "sweep.json"), RUN: ("run.json", "result.json", "requests.parquet")}
MOST = 500
"""Folders that are listed."""


@dataclass(frozen=True)
class Kept:
    """A folder of a study or of a run.

    folder: as a page names it. total, done, failed: cells of a study; failed is None of one that is not complete. when: it was written to
    last, in seconds since 1970. running: somebody is at it. problem: why it cannot be opened.
    """

    folder: str
    kind: str
    name: str
    when: float
    question: str = ""
    total: int = 0
    done: int = 0
    failed: int | None = None
    running: bool = False
    problem: str = ""

    @property
    def stamp(self) -> tuple[str, float, int]:
        """Changes when the folder does."""
        return self.folder, self.when, self.done


def every() -> tuple[list[Kept], bool]:
    """What there is, the latest first, and whether that is all."""
    held = workspace.holding(*_KINDS.values())
    found = sorted((of(path) for path in held.folders), key=lambda kept: (-kept.when, kept.folder))
    return found[:MOST], held.whole and len(found) <= MOST


def named(name: str) -> Kept:
    """The folder that a link names.

    Raises:
        InputError: it lies outside the workspace, or is none of a study or run.
    """
    path = workspace.inside(name)
    try:
        there = path.is_dir()
        kinds = [kind for kind, files in _KINDS.items() if all((path / file).is_file() for file in files)]
    except OSError:
        there, kinds = False, []
    if not there:
        raise InputError(f"{name}: the workspace {workspace.folder()} has no such folder")
    if not kinds:
        raise InputError(
            f"{name}: is no folder of a study or a run; `servetwin sweep` and `servetwin run --out` write such"
        )
    return of(path)


def of(path: Path) -> Kept:
    """What a folder holds; one that is damaged says so."""
    folder = workspace.relative(path)
    kind = SWEEP if (path / "sweep.json").is_file() else RUN
    try:
        for file in (*_KINDS[kind], "table.parquet", "cells"):
            workspace.inside(path / file)  # a link within a folder leads out as well as one to it
        if kind == RUN:
            return Kept(folder, kind, path.name, (path / "run.json").stat().st_mtime)
        return _sweep(path, folder)
    except (InputError, OSError) as error:
        return Kept(folder, kind, path.name, 0.0, problem=_of_page(str(error)))


def _sweep(path: Path, folder: str) -> Kept:
    kept = Folder(path)
    name, question, total = _described(path, (path / "study.yaml").stat().st_mtime_ns)
    table, cells = kept.table_file, path / "cells"
    found = Kept(folder, SWEEP, name, 0.0, question, total)
    if table.is_file():
        when = table.stat()
        return replace(found, when=when.st_mtime, done=total, failed=_failed(table, when.st_mtime_ns))
    when_cells = cells.stat().st_mtime if cells.is_dir() else (path / "sweep.json").stat().st_mtime
    done = sum(file.suffix == ".parquet" and file.name[0] != "." for file in _files(cells))
    return replace(found, when=when_cells, done=min(done, total), running=kept.is_held())


@lru_cache(maxsize=4 * MOST)
def _described(path: Path, _changed: int) -> tuple[str, str, int]:
    """Name, question and number of cells of a study."""
    kept = Folder(path)
    study, name = kept.study(), kept.name()
    # What came from no file of its own has no name of its own.
    return path.name if name == "study" else name, study.question, study.cell_count


@lru_cache(maxsize=4 * MOST)
def _failed(table: Path, _changed: int) -> int | None:
    """Cells without figures; None where the table is none of a study, which is said when it is opened."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        (errors,) = pq.read_table(table, columns=["error"]).columns
    except (OSError, pa.ArrowException, ValueError):
        return None
    return len(errors) - int(errors.null_count)


def _files(folder: Path) -> Iterable[Path]:
    return folder.iterdir() if folder.is_dir() else ()


def _of_page(text: str) -> str:
    """A message without where the workspace lies."""
    return text.replace(f"{workspace.folder()}/", "")
