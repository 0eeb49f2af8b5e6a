"""The folder of a sweep: a file for every cell that is finished, complete or not there.

study.yaml              the study, as it was read
sweep.json              what decides its cells, so that another study under this folder is noticed
cells/KEY.parquet       one row a cell, under the hash of its scenario
requests/KEY.parquet    one row a request of it, where that was asked for
table.parquet           all rows, by point and seed; there when every cell is
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios import documents
from scenarios.errors import InputError
from studies.provenance import environment
from studies.reports import files, tables
from studies.reports.strict_json import dumps
from studies.sweeps import columns, study
from studies.sweeps.cells import Row
from studies.sweeps.study import Study

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT_VERSION = 1
OURS = frozenset(["study.yaml", "sweep.json", "sweep.html", "table.parquet", "cells", "requests", ".lock"])
CELL = b"servetwin.cell"
CONTENT = b"servetwin.content"
"""Metadata of a cell's file: its key and a hash of its row, so that a file of another cell or a damaged one is noticed."""
MOST_CHANGES = 5
_ONE_ROW = {"compression": "none", "use_dictionary": False, "write_statistics": False}
"""How a row is written: what makes many of them small takes as long as writing this one."""


@dataclass(frozen=True)
class Folder:
    """A sweep's folder. Nothing in it is half written: files get their names when they are complete."""

    path: Path

    @property
    def table_file(self) -> Path:
        return self.path / "table.parquet"

    def check(self) -> None:
        """Raises InputError if no sweep can be written here, or would mingle with something else."""
        files.check_folder(self.path, "a sweep", lambda name: name in OURS or _is_part(name))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder, which is made if need be, for one sweep at a time. A process that is gone holds nothing.

        Raises:
            InputError: another sweep is running on it, or it cannot be written to.
        """
        with _written(self.path):
            for part in (self.path, self.path / "cells"):
                part.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _taken(handle):
                raise InputError(
                    f"--out {self.path}: another sweep is running on this folder; wait for it, or give another folder"
                )
            for left in (p for part in ("", "cells", "requests") for p in (self.path / part).glob(".*.part")):
                left.unlink(missing_ok=True)  # of processes that were killed
            yield
        finally:
            os.close(handle)

    def is_held(self) -> bool:
        """Whether a sweep is running on it."""
        import fcntl

        try:
            handle = os.open(self.path / ".lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def begin(self, asked: Study, *, update: bool = False) -> None:
        """Takes note of the study, or of its changes.

        Raises:
            InputError: the folder holds a sweep of another study, and not `update`; or it cannot be written to.
        """
        changes = self.changes(asked)
        if changes and not update:
            raise InputError(
                f"--out {self.path}: holds a sweep of another study: {tables.few(changes, MOST_CHANGES, '; ')}. Give a new "
                "folder, or --update: cells that are still the same are kept, the others are run, and what the study no longer has "
                "leaves the table"
            )
        if changes:
            self.table_file.unlink(missing_ok=True)
            (self.path / "sweep.html").unlink(missing_ok=True)
        self._write("study.yaml", asked.to_yaml().encode())
        self._write("sweep.json", (dumps({"name": asked.name} | identity(asked)) + "\n").encode())

    def changes(self, asked: Study) -> list[str]:
        """What a study has that the one of this folder has not, a sentence each; none where the folder is new.

        Raises:
            InputError: the folder's note is damaged.
        """
        file = self.path / "sweep.json"
        if not file.is_file():
            return []
        try:
            before = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(before, dict) or before["format_version"] != FORMAT_VERSION:
                raise ValueError(f"this version reads format_version {FORMAT_VERSION}")
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"{file}: cannot be read: {error}. Remove it: cells that belong to the study are kept"
            ) from None
        before.pop("name", None)
        return differences(before, json.loads(dumps(identity(asked))))

    def name(self) -> str:
        """What the study was called when it was read from its own file."""
        try:
            return str(json.loads((self.path / "sweep.json").read_text(encoding="utf-8"))["name"])
        except (OSError, ValueError, KeyError, TypeError):
            return self.path.resolve().name

    def study(self) -> Study:
        """The study of this folder; what it is based on need not be there.

        Raises:
            InputError: there is none, or it is damaged.
        """
        file = self.path / "study.yaml"
        if not file.is_file():
            raise InputError(f"{self.path}: no sweep (it has no study.yaml)")
        return study.from_mapping(documents.read_mapping(file), str(file), self.path, check=False)

    def read(self, key: str) -> Row | None:
        """The row of a finished cell, or None.

        Raises:
            InputError: a file is there that is damaged, or is not of this cell.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self._cell(key)
        try:
            found = pq.ParquetFile(file).read(use_threads=False)
            rows: list[Row] = found.to_pylist()
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException, ValueError):
            raise InputError(f"{file}: damaged") from None
        told = found.schema.metadata or {}
        if told.get(CELL) != key.encode() or len(rows) != 1:
            raise InputError(f"{file}: not of this cell")
        if told.get(CONTENT) != _hash(rows[0]):
            raise InputError(f"{file}: damaged")
        return rows[0]

    def has(self, key: str) -> bool:
        """Whether there is a file of that cell, damaged or not."""
        return self._cell(key).is_file()

    def has_requests(self, key: str) -> bool:
        return (self.path / "requests" / f"{key}.parquet").is_file()

    def keep(self, key: str, row: Row, requests: pa.Table | None = None) -> None:
        """Writes a finished cell.

        Raises:
            InputError: the disk is full, or the folder cannot be written to.
        """
        if requests is not None:
            with _written(self.path):
                (self.path / "requests").mkdir(exist_ok=True)
            self._write_table(f"requests/{key}.parquet", requests)
        found = columns.table([row])
        told = {CELL: key.encode(), CONTENT: _hash(found.to_pylist()[0])}
        self._write_table(f"cells/{key}.parquet", found.replace_schema_metadata(told), **_ONE_ROW)

    def finish(self, rows: Sequence[Row], asked: Study) -> None:
        """Writes the table of all rows."""
        self._write_table("table.parquet", columns.table(rows, asked.axis_values()))

    def _cell(self, key: str) -> Path:
        return self.path / "cells" / f"{key}.parquet"

    def _write_table(self, name: str, found: pa.Table, **options: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        packed = pa.BufferOutputStream()
        with _written(self.path):
            pq.write_table(found, packed, **(options or {"compression": "zstd"}))
        self._write(name, packed.getvalue())

    def _write(self, name: str, content: bytes | pa.Buffer) -> None:
        with _written(self.path), files.whole(self.path / name) as part, part.open("wb") as file:
            file.write(content)


def identity(asked: Study) -> dict[str, Any]:
    """What decides the cells of a study, JSON-able: contents of files rather than their names."""
    base = asked.base_scenario().model_dump(mode="json", exclude={"name", "description"}, context={"digest": True})
    return {
        "format_version": FORMAT_VERSION,
        **{name: environment()[name] for name in ("servetwin", "source")},
        "study": {name: value for name, value in asked.content().items() if name not in ("base", "scenario")},
        "scenario": base,
    }


def differences(before: Any, now: Any, path: str = "") -> list[str]:
    """Where two JSON documents differ, such as `study.seeds: was 5, now 3`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = list(dict.fromkeys([*before, *now]))
        found = []
        for name in names:
            found += differences(before.get(name), now.get(name), f"{path}.{name}" if path else name)
        return found
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            text for i, (a, b) in enumerate(zip(before, now, strict=True)) for text in differences(a, b, f"{path}[{i}]")
        ]
    if path == "source" and before != now:
        return ["the code of servetwin has changed"]
    return [] if before == now else [f"{path}: was {_said(before)}, now {_said(now)}"]


def _said(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _taken(handle: int) -> bool:
    """Whether a lock could be had. Who looks whether there is one (`Folder.is_held`) holds it for a moment."""
    import fcntl

    for pause in (0.0, 0.01, 0.05):
        time.sleep(pause)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _hash(row: Row) -> bytes:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest().encode()


def _is_part(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """A write that fails is told as one."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"--out {folder}: cannot be written to ({error.strerror or error}); cells that are finished are kept. Make room there, and "
            "give the same command again"
        ) from None
