"""Measured points as full grids: what is missing, what dips, what lies between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibration.operators.number_table import NumberTable
from scenarios.errors import InputError

Floats = NDArray[np.float64]


def to_grid(table: NumberTable, axes: Sequence[str], time: str) -> tuple[tuple[tuple[int, ...], ...], Floats]:
    """The rows of a table as a full grid over the values that each axis takes.

    A corner that the measuring engine had no room for (all larger ones missing too) goes on with the last slope.

    Returns:
        The points of each axis, and times over them, one dimension an axis.

    Raises:
        InputError: a hole: a point is missing though larger ones are there; an axis that is not whole numbers.
    """
    points, index = [], []
    for name in axes:
        column = table.numbers[name]
        broken = column != np.floor(column)
        if broken.any():
            row = int(np.argmax(broken))
            raise table.refused(row, f"{name}: found {column[row]:g}, but a whole number is needed")
        values, where = np.unique(column, return_inverse=True)
        points.append(tuple(int(value) for value in values))
        index.append(where)
    grid = np.full([len(values) for values in points], np.nan)
    grid[tuple(index)] = table.numbers[time]
    missing = int(np.isnan(grid).sum())
    if missing:
        grid = _continued(grid, points)
        holes = np.argwhere(np.isnan(grid))
        if len(holes):
            said = ", ".join(
                f"{n} {points[k][i]}" for k, (n, i) in enumerate(zip(axes, holes[0].tolist(), strict=True))
            )
            raise InputError(
                f"{table.path}: no row for {said}: the grid of {', '.join(axes)} has {missing} hole{'s' * (missing > 1)}; "
                "measure it, or leave out all rows with one of these values"
            )
    return tuple(points), grid


def _continued(grid: Floats, points: Sequence[Sequence[int]]) -> Floats:
    """The last slope beyond the last point of each line, last axis first; what has points on both sides stays a hole."""
    grid = grid.copy()
    for axis in reversed(range(grid.ndim)):
        at = np.array(points[axis], dtype=np.float64)
        for line in _lines(grid, axis):
            known = int(np.argmax(np.isnan(line))) if np.isnan(line).any() else len(line)
            if 2 <= known < len(line) and np.isnan(line[known:]).all():
                slope = max(0.0, (line[known - 1] - line[known - 2]) / (at[known - 1] - at[known - 2]))
                line[known:] = line[known - 1] + slope * (at[known:] - at[known - 1])
    return grid


def _lines(grid: Floats, axis: int) -> list[Floats]:
    """Views of every line along an axis."""
    moved = np.moveaxis(grid, axis, -1)
    return [moved[index] for index in np.ndindex(moved.shape[:-1])]


def monotone(grid: Floats) -> Floats:
    """The middle of the closest grids above and below that never fall along any axis: more work must not cost less."""
    above, below = grid.copy(), grid.copy()
    for axis in range(grid.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis), axis=axis), axis)
    middle: Floats = (above + below) / 2.0
    return middle


def leave_one_out(at: Floats, values: Floats) -> Floats:
    """Relative errors of the inner points of lines along the last axis, each predicted straight between its neighbours."""
    if len(at) < 3:
        return np.empty(0)
    weight = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
    predicted = values[..., :-2] * (1 - weight) + values[..., 2:] * weight
    errors: Floats = (predicted / values[..., 1:-1] - 1.0).ravel()
    return errors
