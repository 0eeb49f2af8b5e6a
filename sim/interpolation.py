"""Curves and grids of measured operators between their points, and beyond them.

Beyond the last point costs grow with the slope of the upper half, so that noise in the last two points does not decide
everything; below the first they are flat. Slopes beyond a grid never fall along its other axis, so that a grid which grows
along both axes does so everywhere (law 12).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

FAR = 64  # times the last point of an axis: where the edge of an extended grid is put


def on_curve(at: Sequence[int], ns: Sequence[float], x: Array) -> Array:
    """A curve at `x`, shape of `x`. It may dip between its points, but does not fall beyond them."""
    points, values = np.asarray(at, dtype=np.float64), np.asarray(ns, dtype=np.float64)
    beyond = np.maximum(x - points[-1], 0.0)
    return np.asarray(np.interp(x, points, values) + beyond * max(float(_last_slope(points, values)), 0.0))


def _last_slope(at: Array, values: Array) -> Array:
    """Slope of the upper half of the first axis of `values`, by what remains of its shape; 0 for a single point."""
    if len(at) < 2:
        return np.zeros(values.shape[1:])
    below = np.flatnonzero(at[:-1] <= at[-1] / 2)
    lower = int(below[-1]) if len(below) else 0
    return np.asarray((values[-1] - values[lower]) / (at[-1] - at[lower]))


class Plane:
    """A grid over two axes that is bilinear in its cells and goes on beyond them.

    rows: `(R + 1,)`. columns: `(C + 1,)`. values: `(R + 1, C + 1)`. Of each the last is the far edge; the slopes towards it go
    on beyond it.
    """

    def __init__(self, rows: Sequence[int], columns: Sequence[int], ns: ArrayLike) -> None:
        values = np.asarray(ns, dtype=np.float64)
        self.columns, values = _extended(np.asarray(columns, dtype=np.float64), values.T)
        self.rows, self.values = _extended(np.asarray(rows, dtype=np.float64), values.T)
        self._row_points, self._column_points = self.rows[:-1].tolist(), self.columns[:-1].tolist()
        self._cells = self._polynomials()

    def _polynomials(self) -> list[list[tuple[float, float, float, float]]]:
        """By cell `(a, b, c, d)`: a + b row + c column + d row column."""
        v, rows, columns = self.values, self.rows[:, None], self.columns[None, :]
        height, width = np.diff(rows, axis=0), np.diff(columns, axis=1)
        d = np.diff(np.diff(v, axis=0), axis=1) / (height * width)
        b = np.diff(v, axis=0)[:, :-1] / height - d * columns[:, :-1]
        c = np.diff(v, axis=1)[:-1] / width - d * rows[:-1]
        a = v[:-1, :-1] - b * rows[:-1] - c * columns[:, :-1] - d * rows[:-1] * columns[:, :-1]
        return [list(zip(*(x[i].tolist() for x in (a, b, c, d)), strict=True)) for i in range(len(a))]

    def at(self, row: float, column: float) -> float:
        """The value at one place."""
        i, j = bisect_right(self._row_points, row) - 1, bisect_right(self._column_points, column) - 1
        if i < 0:
            i, row = 0, self._row_points[0]
        if j < 0:
            j, column = 0, self._column_points[0]
        a, b, c, d = self._cells[i][j]
        return a + b * row + (c + d * row) * column

    def along(self, row: float) -> Array:
        """The values at `columns` for one row, shape `(C + 1,)`."""
        i = min(max(int(np.searchsorted(self.rows, row, side="right")) - 1, 0), len(self.rows) - 2)
        share = max(row - self.rows[i], 0.0) / (self.rows[i + 1] - self.rows[i])
        return np.asarray(self.values[i] + share * (self.values[i + 1] - self.values[i]))


def _extended(at: Array, values: Array) -> tuple[Array, Array]:
    """An axis, the first of `values`, with a far edge."""
    slope = np.maximum.accumulate(np.maximum(_last_slope(at, values), 0.0))
    far = FAR * max(float(at[-1]), 1.0)
    return np.append(at, far), np.vstack([values, values[-1] + slope * (far - at[-1])])


class Box:
    """A grid over four axes, multilinear inside and as at its border beyond it.

    axes: one ascending sequence of points an axis. values: of their shape. The third coordinate is a count that comes again and
    again: what it leaves of the grid is kept.
    """

    def __init__(self, axes: Sequence[Sequence[float]], values: Array) -> None:
        self._first, self._second, counts, self._last = (list(axis) for axis in axes)
        self._counts = np.asarray(counts, dtype=np.float64)
        self._values = values
        self._kept: dict[int, list[list[list[float]]]] = {}

    def at(self, first: float, second: float, count: int, last: float) -> float:
        """The value at one place."""
        grid = self._kept.get(count)
        if grid is None:
            grid = self._kept[count] = self._of(count)
        i, x = _share(self._first, first)
        j, y = _share(self._second, second)
        k, z = _share(self._last, last)
        found = []
        for plane in (grid[i], grid[i + 1] if x else grid[i]):
            row, other = plane[j], plane[j + 1] if y else plane[j]
            a, b = (row[k], other[k])
            if z:
                a += z * (row[k + 1] - a)
                b += z * (other[k + 1] - b)
            found.append(a + y * (b - a))
        return found[0] + x * (found[1] - found[0])

    def _of(self, count: int) -> list[list[list[float]]]:
        k, z = _share(self._counts.tolist(), count)
        low = self._values[:, :, k]
        found: list[list[list[float]]] = (low + z * (self._values[:, :, k + 1] - low) if z else low).tolist()
        return found


def _share(axis: list[float], x: float) -> tuple[int, float]:
    """The point at or below x, and how much of the way to the next one x is: 0 at the ends of the axis and beyond."""
    i = bisect_right(axis, x) - 1
    if i < 0:
        return 0, 0.0
    if i >= len(axis) - 1:
        return len(axis) - 1, 0.0
    low = axis[i]
    return i, (x - low) / (axis[i + 1] - low)
