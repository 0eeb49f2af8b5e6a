"""How well operators are told without themselves: each measured row predicted from its neighbours, and the error that makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibration.operators.grids import leave_one_out
from calibration.operators.tables import Floats, Grid, Ints, OperatorTables
from sim.profile_parts import Errors

SAMPLES = 400
_SEED = 20


def errors(
    tables: OperatorTables,
    shapes: Sequence[tuple[int, int]],
    dtype: str,
    prefill: Grid,
    decode: Grid,
    curves: Mapping[str, tuple[Ints, Floats]],
) -> dict[str, Errors]:
    """By operator. shapes: (n, k) of the dense GEMMs; the rows of the nearest measured shapes are judged, over m and over n."""
    found: dict[str, Errors] = {}
    if dtype in tables.gemm:
        table = tables.gemm[dtype]
        cells = sorted({(_nearest(table.n, n), _nearest(table.k, k)) for n, k in shapes})
        found["gemm over m"] = _summary(np.concatenate([_along(table.m, table.ns[:, i, j]) for i, j in cells]))
        found["gemm over n"] = _summary(
            np.concatenate([_one_left_out(table.n, table.ns[:, :, j].T, i) for i, j in cells])
        )
    if prefill.origin.version != "roofline":
        found["prefill attention over tokens"] = _summary(_over(prefill.across, prefill.ns))
    if decode.origin.version != "roofline":
        found["decode attention over context"] = _summary(_over(decode.across, decode.ns))
        found["decode attention over batch"] = _summary(_over(decode.down, decode.ns.T))
    for term in ("experts", "all-reduce"):
        if term in curves:
            found[f"{term} over tokens"] = _summary(_along(*curves[term]))
    return found


def _nearest(grid: Ints, value: int) -> int:
    return int(np.argmin(np.abs(grid - value)))


def _along(at: Ints, ns: Floats) -> Floats:
    """Relative errors of the inner points, each from its two neighbours."""
    known = np.isfinite(ns)
    return leave_one_out(at[known].astype(np.float64), ns[known])


def _over(at: Ints, ns: Floats) -> Floats:
    return np.concatenate([_along(at, row) for row in ns])


def _one_left_out(at: Ints, ns: Floats, i: int) -> Floats:
    """Relative errors of row i of `(len(at), ...)` from the rows around it; none at the border."""
    if not 0 < i < len(at) - 1:
        return np.empty(0)
    share = float(at[i] - at[i - 1]) / float(at[i + 1] - at[i - 1])
    line = ns[i - 1] * (1 - share) + ns[i + 1] * share
    return np.asarray(line / ns[i] - 1.0, dtype=np.float64)


def _summary(found: Floats) -> Errors:
    found = found[np.isfinite(found)]
    if len(found) > SAMPLES:
        found = np.random.default_rng(_SEED).choice(found, SAMPLES, replace=False)
    whole = Errors.of(found)
    return whole.model_copy(
        update={name: round(getattr(whole, name), 5) for name in ("mape", "signed_mean", "p90", "worst")}
    )
