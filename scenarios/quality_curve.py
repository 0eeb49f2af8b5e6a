"""How good a model's answers are, by the difficulty of what it is asked."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BeforeValidator, Field, model_validator

from scenarios import documents
from scenarios.errors import misplaced
from scenarios.fields import File, Section, ShortForm

Floats = NDArray[np.float64]
Share = Annotated[float, Field(ge=0, le=1)]
GROUPS = 10
"""Points of a measured curve: as many groups of equally many answers, fewer where there are few answers."""
LEAST = 5  # answers in a group


class QualityCurve(Section):
    """The chance that an answer is right (or its mean score in [0, 1]) over difficulty: straight between points, flat beyond them.

    Args:
        points: `[[difficulty, quality], ...]`, by rising difficulty. Short forms: the list alone, or one number for all difficulties.
        measured: instead of points, a CSV file with columns `difficulty` and `score`, a row an answer that was judged.
    """

    points: Annotated[tuple[Annotated[tuple[Share, Share], Field(strict=False)], ...], Field(strict=False)] = ()
    measured: File | None = None

    @model_validator(mode="after")
    def _one_source(self) -> QualityCurve:
        if bool(self.points) == (self.measured is not None):
            raise misplaced("needs points or a measured file, and not both", "points")
        difficulties = [difficulty for difficulty, _ in self.points]
        if any(b <= a for a, b in pairwise(difficulties)):
            raise misplaced(f"found difficulties {difficulties}, but they must rise", "points")
        if self.measured is not None:
            _ = self.curve  # refused here, where the path of the field is known
        return self

    @cached_property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """`(difficulty, quality)` by rising difficulty."""
        return self.points if self.measured is None else _measured(Path(self.measured))

    @property
    def source(self) -> str:
        """Where it is from, in words."""
        return "given" if self.measured is None else f"measured: {Path(self.measured).name}"


def quality_at(curve: Sequence[Sequence[float]], difficulty: ArrayLike) -> Floats:
    """Quality at each difficulty, in the shape of `difficulty`. curve: `(difficulty, quality)` pairs."""
    x, y = np.array(curve, dtype=np.float64).T
    return np.asarray(np.interp(np.asarray(difficulty, dtype=np.float64), x, y))


def _measured(path: Path) -> tuple[tuple[float, float], ...]:
    """Means of groups of neighbours in difficulty.

    Raises:
        InputError, ValueError: the file cannot be read, or holds something else.
    """
    try:
        rows = list(csv.reader(documents.read_text(path).splitlines()))
    except csv.Error as error:
        raise ValueError(f"{path}: broken CSV: {error}") from None
    head = [name.strip().lower() for name in rows[0]] if rows else []
    if "difficulty" not in head or "score" not in head:
        raise ValueError(
            f"{path}: line 1: found {', '.join(head) or 'nothing'}, but columns difficulty and score are needed"
        )
    at = [head.index("difficulty"), head.index("score")]
    values = []
    for line, row in enumerate(rows[1:], 2):
        if not row:
            continue
        try:
            pair = [float(row[i]) for i in at]
        except (ValueError, IndexError):
            raise ValueError(f"{path}: line {line}: found {','.join(row)!r}, but two numbers are needed") from None
        if not all(0 <= value <= 1 for value in pair):
            raise ValueError(f"{path}: line {line}: found {pair[0]:g} and {pair[1]:g}, but both are shares, 0 to 1")
        values.append(pair)
    if not values:
        raise ValueError(f"{path}: there is a header, but not one answer")
    table = np.array(sorted(values))
    groups = np.array_split(table, max(1, min(GROUPS, len(table) // LEAST)))
    means: dict[float, list[tuple[int, float]]] = {}
    for group in groups:  # groups of one and the same difficulty are one point
        means.setdefault(float(group[:, 0].mean()), []).append((len(group), float(group[:, 1].sum())))
    return tuple((d, sum(s for _, s in parts) / sum(n for n, _ in parts)) for d, parts in sorted(means.items()))


def _short(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"points": [[0.0, float(value)]]}
    if isinstance(value, list | tuple):
        return {"points": [list(pair) if isinstance(pair, list | tuple) else pair for pair in value]}
    if isinstance(value, Mapping | Section):
        return value
    raise ValueError(
        f"found {value!r}, but a share is needed (0.8), pairs of difficulty and quality ([[0, 0.95], [1, 0.4]]), or "
        "{measured: answers.csv}"
    )


Quality = Annotated[
    QualityCurve,
    BeforeValidator(_short),
    ShortForm({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "array"}]}),
]
