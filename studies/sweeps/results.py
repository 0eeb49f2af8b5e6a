"""What a sweep found: a row a cell, and of every point its figures with intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.errors import InputError, unknown
from studies.replications import ALIKE, alike
from studies.statistics import intervals
from studies.statistics.intervals import CONFIDENCE, Interval
from studies.sweeps.axes import Point
from studies.sweeps.cells import Row
from studies.sweeps.study import Study

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from studies.sweeps.store import Folder

METRICS = (
    "p50_ttft_ms",
    "p95_ttft_ms",
    "p50_tpot_ms",
    "output_throughput",
    "good_request_fraction",
    "usd_per_1m_output_tokens",
)
"""Figures that are shown where nobody names others."""
HEAD = ("point", "seed", "scenario_hash", "error")
"""Columns of a row that are neither an axis (`axis.*`) nor a figure."""


@dataclass(frozen=True)
class Outcome:
    """One point over its seeds.

    figures: means by metric, with Student's t interval. causes: what queues waited for, a text a cell that had one.
    errors: of cells that could not be run, by seed; a figure then has no interval.
    """

    point: Point
    cells: int
    figures: Mapping[str, Interval]
    by_seed: Mapping[str, Mapping[int, float | None]] = field(repr=False)
    causes: tuple[str, ...] = ()
    errors: Mapping[int, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "point": self.point.index,
            "axes": dict(self.point.values),
            "cells": self.cells,
            "failed": len(self.errors),
            "figures": {key: figure.to_dict() for key, figure in self.figures.items()},
        }
        return found | (
            {"binds": max(set(self.causes), key=lambda c: (self.causes.count(c), c))} if self.causes else {}
        )


@dataclass(frozen=True)
class Sweep:
    """A study and its rows, in order of point and seed.

    folder: where it is kept; None of one that is not. run, skipped: cells that were simulated, and that were there, when it was made.
    called: name of the study, where its file has another one by now.
    """

    study: Study
    rows: tuple[Row, ...] = field(repr=False)
    folder: Path | None = None
    run: int = 0
    skipped: int = 0
    called: str = ""
    _points: dict[Any, list[Outcome]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The study's."""
        return self.called or self.study.name

    @property
    def missing(self) -> int:
        """Cells that are neither run nor failed: of a sweep that was stopped."""
        return self.study.cell_count - len(self.rows)

    @property
    def failed(self) -> int:
        """Cells that could not be run."""
        return sum(row["error"] is not None for row in self.rows)

    def table(self) -> pa.Table:
        """A row a cell: `point`, `seed`, `scenario_hash`, `error`, `axis.*`, and figures by their keys; as `table.parquet` has it."""
        from studies.sweeps import columns

        return columns.table(self.rows, self.study.axis_values())

    def frame(self) -> pd.DataFrame:
        """The same as a pandas frame.

        Raises:
            InputError: pandas is not installed.
        """
        from studies.frames import to_pandas

        return to_pandas(self.table())

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Figures that some cell has, in order."""
        return tuple(key for key, known in self._figures.items() if known)

    @cached_property
    def _figures(self) -> dict[str, bool]:
        """Figures by key, and whether some cell has it; one that none has, such as a tail, is one nevertheless. Words are none."""
        found: dict[str, bool] = {}
        words = set()
        for row in self.rows:
            for key, value in row.items():
                if isinstance(value, bool | int | float):
                    found[key] = True
                elif value is None:
                    found.setdefault(key, False)
                else:
                    words.add(key)
        none = words | set(HEAD)
        return {key: known for key, known in found.items() if key not in none and not key.startswith("axis.")}

    def metrics(self, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
        """Figures to show: those that are wanted, or that the study names, or some that are asked for often.

        Raises:
            InputError: no cell has such a figure.
        """
        named = tuple(wanted or self.study.metrics)
        where = "--metric" if wanted else f"{self.study.source}: metrics"
        for i, key in enumerate(named):
            if key not in self._figures and any(row["error"] is None for row in self.rows):
                raise InputError(f"{where}{'' if wanted else f'[{i}]'}: {unknown('metric', key, self._figures)}")
        return named or tuple(key for key in METRICS if key in self.keys)

    def points(self, metrics: Sequence[str] | None = None, confidence: float = CONFIDENCE) -> list[Outcome]:
        """Every point that has a cell, in order, with means over seeds of the named figures.

        Raises:
            InputError: no cell has such a figure. ValueError: a confidence that is not between 0 and 1.
        """
        chosen = self.metrics(metrics)
        if (chosen, confidence) not in self._points:
            by_point: dict[int, list[Row]] = {}
            for row in self.rows:
                by_point.setdefault(row["point"], []).append(row)
            self._points[chosen, confidence] = [
                _outcome(point, by_point[point.index], chosen, confidence)
                for point in self.study.points()
                if point.index in by_point
            ]
        return list(self._points[chosen, confidence])

    def counts(self) -> dict[str, int]:
        """`cells_total`, and of these `cells_run` and `cells_skipped` this time, and `cells_failed`."""
        return {
            "cells_total": len(self.rows) + self.missing,
            "cells_run": self.run,
            "cells_skipped": self.skipped,
            "cells_failed": self.failed,
        }

    def to_dict(self, metrics: Sequence[str] | None = None, confidence: float = CONFIDENCE) -> dict[str, Any]:
        return {
            "study": self.name,
            **self.counts(),
            "folder": None if self.folder is None else str(self.folder),
            "points": [outcome.to_dict() for outcome in self.points(metrics, confidence)],
            "failures": [
                {key: row[key] for key in ("point", "seed", "error")} for row in self.rows if row["error"] is not None
            ],
        }


def _outcome(point: Point, rows: Sequence[Row], metrics: Sequence[str], confidence: float) -> Outcome:
    by_seed = {key: {row["seed"]: _number(row.get(key)) for row in rows} for key in metrics}
    figures = {key: intervals.mean(list(values.values()), confidence) for key, values in by_seed.items()}
    if alike(rows):
        figures = {
            key: replace(found, low=None, high=None, n=1, refused=found.refused or ALIKE)
            for key, found in figures.items()
        }
    return Outcome(
        point,
        len(rows),
        figures,
        by_seed,
        tuple(row["binding.cause"] for row in rows if row.get("binding.cause")),
        {row["seed"]: row["error"] for row in rows if row["error"] is not None},
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, bool | int | float) else None


def load_sweep(folder: Path | str, progress: Callable[[float], None] | None = None) -> Sweep:
    """The sweep of a folder: all of it, or, of one that was stopped, the cells that are finished.

    progress: called with which part of these cells, up to 1, is read.

    Raises:
        InputError: there is none, or it is damaged.
    """
    from studies.sweeps.store import Folder

    kept = Folder(Path(folder))
    study = kept.study()
    if kept.table_file.is_file():
        rows = _rows_of(kept.table_file, study.cell_count)
    else:
        keys = sorted(file.stem for file in (kept.path / "cells").glob("[!.]*.parquet"))
        found = []
        for done, key in enumerate(keys, 1):
            if (row := _finished(kept, key)) is not None:
                found.append(row)
            if progress is not None and done % 50 == 0:
                progress(done / len(keys))
        points = study.points()
        # Of an earlier study under this folder there may be others.
        rows = sorted(
            (row for row in found if row["point"] < len(points) and _is_at(row, points[row["point"]])),
            key=lambda row: (row["point"], row["seed"]),
        )
    return Sweep(study, tuple(rows), kept.path, 0, len(rows), kept.name())


def is_sweep(folder: Path) -> bool:
    """Whether a folder is one of a sweep."""
    return (folder / "sweep.json").is_file() and (folder / "study.yaml").is_file()


def _rows_of(file: Path, cells: int) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows: list[Row] = pq.read_table(file).to_pylist()
    except (OSError, pa.ArrowException, ValueError):
        rows = []
    again = "give the sweep's command again, which writes it anew from its cells"
    if not rows or not {"point", "seed", "error"} <= rows[0].keys():
        raise InputError(f"{file}: damaged; {again}")
    if len(rows) != cells or not all(isinstance(row["point"], int) and isinstance(row["seed"], int) for row in rows):
        raise InputError(f"{file}: has {len(rows):,} rows, but its study has {cells:,} cells; {again}")
    return rows


def _finished(kept: Folder, key: str) -> Row | None:
    """A cell's row; None of a file that is damaged, which will be run again."""
    try:
        return kept.read(key)
    except InputError:
        return None


def _is_at(row: Row, point: Point) -> bool:
    """Whether a row's values by axis are those of a point, as its file has them."""
    from studies.sweeps import columns

    (there,) = columns.table(
        [{f"axis.{axis}": value for axis, value in point.values.items()} or {"": None}]
    ).to_pylist()
    return all(row.get(name) == value for name, value in there.items())
