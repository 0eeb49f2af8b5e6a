"""The question library: ready studies with an answer, and whether what this version simulates still bears it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.errors import InputError, unknown
from studies import tables
from studies.expectations import Expectation
from studies.run import Progress
from studies.sweeps import cells
from studies.sweeps.cells import Row
from studies.sweeps.study import Study, names, read

__all__ = ["Answered", "answered", "names", "read", "run"]


@dataclass
class Answered:
    """A study whose cells were run, and of every expectation both figures (means over points and seeds) and whether it holds; None
    where a figure is missing."""

    study: Study
    rows: list[Row]
    outcome: list[tuple[Expectation, float | None, float | None, bool | None]]

    @property
    def holds(self) -> bool:
        """Whether every expectation does."""
        return all(found for *_, found in self.outcome)

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study.name,
            "question": self.study.question,
            "answer": self.study.answer,
            "holds": self.holds,
            "expectations": [
                {"expected": str(expected), "is": first, "against": second, "holds": found}
                for expected, first, second, found in self.outcome
            ],
        }

    def table(self) -> tables.Table:
        """A row an expectation."""
        words = {True: "yes", False: "NO", None: "not measured"}
        rows = [
            (str(expected), tables.number(first), tables.number(second), words[found])
            for expected, first, second, found in self.outcome
        ]
        return tables.Table(self.study.question, ("expected", "is", "against", "holds"), rows, self.study.answer)


def run(name: str | Path | Study, *, small: bool = False, progress: Progress | None = None) -> Answered:
    """Runs a study in this process and holds its outcome against what is expected. small: as its `reduced` says.

    Raises:
        InputError: the study is wrong, or one of its cells cannot be run.
    """
    study = name if isinstance(name, Study) else read(name)
    chosen = cells.cells(study, small=small)
    rows = []
    for i, cell in enumerate(chosen):
        if progress is not None:
            progress(f"{study.name}: {cell.point}", i / len(chosen))
        row, _ = cells.run(cell)
        if row["error"] is not None:
            raise InputError(row["error"])
        rows.append(row)
    return answered(study, rows)


def answered(study: Study, rows: list[Row]) -> Answered:
    """Holds rows of a study against what is expected of it.

    Raises:
        InputError: an expectation names a figure that no row has.
    """
    outcome = []
    for i, expected in enumerate(study.expect):
        first, second = (
            _mean(rows, case, expected, f"{study.source}: expect[{i}]") for case in (expected.first, expected.than)
        )
        missing = first is None or second is None
        outcome.append((expected, first, second, None if missing else expected.holds(first, second)))  # type: ignore[arg-type]
    return Answered(study, rows, outcome)


def _mean(rows: list[Row], case: Any, expected: Expectation, where: str) -> float | None:
    key = expected.metric if expected.of_class is None else f"by_class.{expected.of_class}.{expected.metric}"
    assert isinstance(case, Mapping)
    mine = [row for row in rows if all(row.get(f"axis.{axis}") == value for axis, value in case.items())]
    if not any(key in row for row in mine):
        raise InputError(f"{where}.metric: {unknown('metric', key, sorted({k for row in mine for k in row}))}")
    values = [row[key] for row in mine if row.get(key) is not None]
    return sum(values) / len(values) if values and len(values) == len(mine) else None
