"""The time of a GEMM of any n and k at every measured m: bilinear in n and k, linear in m.

The rows off a multiple of a tile (129, 1025, ...) stay: a kernel that pads to a tile leaps there, and steps often land there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.operators.tables import Floats, Gemm, Ints, digest
from scenarios.errors import InputError

SPIKE = 1.5
"""A measured row that takes so many times what the next larger ones take is no measurement of that kernel."""

FEW = 0.1
"""Share of the m of a shape that may be missing, one at a time, before it counts as a hole."""


@dataclass(frozen=True)
class GemmCurve:
    """ns: `(M,)` at m `(M,)`. lost: single m that were not measured at this shape. spikes: rows that were left
    out. raised: largest share by which it was raised to what reading its weights takes. used: how many measured rows went in. split: into how many GEMMs one wider than the table was cut.
    below: n or k was less than any measured, whose time is taken."""

    m: Ints
    ns: Floats
    used: int
    hash: str
    lost: tuple[int, ...] = ()
    spikes: tuple[int, ...] = ()
    raised: float = 0.0
    split: int = 1
    below: bool = False


def gemm_curve(table: Gemm, n: int, k: int) -> GemmCurve:
    """Nanoseconds at every measured m of `(m, k) x (k, n)`.

    A GEMM wider than the table (an output head) is taken as equal parts that the table holds; a longer k is refused.

    Raises:
        InputError: k beyond the table, or a hole in the grid at this shape.
    """
    largest_n, largest_k = int(table.n[-1]), int(table.k[-1])
    if k > largest_k:
        raise InputError(
            f"{table.origin.file}: a GEMM with k {k} is asked for, but k {largest_k} is the longest measured; "
            "use a higher tensor-parallel degree, or tables that hold it"
        )
    split = -(-n // largest_n)
    width = -(-n // split)
    at_n, weight_n = _between(table.n, width)
    at_k, weight_k = _between(table.k, k)
    corner, spikes = _without_spikes(table, at_n, at_k)
    weights = np.outer(weight_n, weight_k)
    used = weights > 0
    known = np.asarray(np.isfinite(corner[:, used]).all(axis=1))
    last = int(np.flatnonzero(known)[-1]) if known.any() else -1
    lost = np.flatnonzero(~known[: last + 1])
    # Nothing above some m: that much did not fit the memory of the machine. Single points within are told by their neighbours.
    if last < 0 or len(lost) > FEW * (last + 1) or np.any(np.diff(lost) == 1) or (len(lost) and lost[0] == 0):
        m = int(table.m[lost[0] if len(lost) else 0])
        near = table.rows[:, at_n[0], at_k[0]]
        raise InputError(
            f"{table.origin.file}: hole in the grid of GEMMs: m {m} near n {width}, k {k} was not measured, nor {max(len(lost) - 1, 0)} "
            f"more up to m {int(table.m[last])} (rows {', '.join(str(r) for r in near[near >= 0][:3].tolist())}, ... were); "
            "measure them, or leave out that n or k everywhere"
        )
    keep = known
    ns = (np.where(used[None], corner, 0.0) * weights[None]).sum(axis=(1, 2))
    # Weights that stayed in a cache while they were measured have to be read in a model.
    read = np.maximum(ns, width * k * table.weight_bytes * table.read_ns)
    raised = float(np.nanmax(read[keep] / ns[keep])) - 1.0
    ns = read * split
    return GemmCurve(
        table.m[keep], ns[keep], int(used.sum()) * int(keep.sum()), digest(corner[keep][:, used]), tuple(table.m[lost].tolist()), spikes, raised, split,
        width < int(table.n[0]) or k < int(table.k[0]),
    )  # fmt: skip


def _without_spikes(table: Gemm, at_n: Ints, at_k: Ints) -> tuple[Floats, tuple[int, ...]]:
    """The columns at these n and k less values that the next three m contradict (their median), if that m is not slow at other shapes too.

    Such a value is told from its neighbours; a kernel that really is slow at one m (a single row, say) is so at most shapes.
    """
    corner = table.ns[:, at_n][:, :, at_k].copy()
    rows: list[int] = []
    usual = table.usual_ratio
    for i, j in np.ndindex(len(at_n), len(at_k)):
        column = corner[:, i, j]
        ratio = column[:-3] / np.median([column[1:-2], column[2:-1], column[3:]], axis=0)
        after = column[:-3] / column[1:-2]
        for m in np.flatnonzero((ratio > SPIKE) & (after > SPIKE * np.maximum(usual[:-2], 1.0))).tolist():
            column[m] = np.interp(table.m[m], table.m[[m - 1, m + 1]], column[[m - 1, m + 1]]) if m else column[1]
            rows.append(int(table.rows[m, at_n[i], at_k[j]]))
    return corner, tuple(rows)


def _between(grid: Ints, value: int) -> tuple[Ints, Floats]:
    """The two neighbours of a value and their weights; the first alone below the grid."""
    if value <= grid[0]:
        return np.array([0]), np.array([1.0])
    i = int(np.searchsorted(grid, value, side="left"))
    if grid[i] == value:
        return np.array([i]), np.array([1.0])
    share = (value - float(grid[i - 1])) / float(grid[i] - grid[i - 1])
    return np.array([i - 1, i]), np.array([1.0 - share, share])
