"""Fits step costs to measured steps: non-negative physical terms and a monotone table of the dense layers, together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibration.features import Column, Observations, shapes_to_observations
from serving.plan import StepShape
from sim.profile import Coefficients
from sim.profile_cost import dense_ns
from sim.profile_parts import Errors, Jump

_MOST_KNOTS = 64


class NotEnoughDataError(ValueError):
    """The observations cannot determine a profile."""


class Fitter:
    """Non-negative least squares of the relative error, scikit-learn style.

    The dense layers are a monotone piecewise linear function of tokens with a knot at each token count that was
    observed. Its increments are unknowns of the same least-squares problem as the physical coefficients, so what rises with
    tokens and what rises with pairs or contexts are told apart by all observations at once. Durations only enter
    relative to themselves (weights 1 / duration).

    Args:
        folds: parts of the cross-validation. seed: of the shuffle that makes them.

    Learned:
        dense_: `(tokens, ns)` knots. coefficients_: the rest. jumps_: where the dense table is not smooth.
        predicted_: ns by observation. residuals_: measured / predicted - 1 by observation.
        cv_predicted_: ns by observation, from a fit that did not see it. cv_error_: by kind of step, and `all`.
    """

    dense_: tuple[tuple[int, float], ...]
    coefficients_: Coefficients
    jumps_: tuple[Jump, ...]
    predicted_: Column
    residuals_: Column
    cv_predicted_: Column
    cv_error_: dict[str, Errors]

    def __init__(self, *, folds: int = 5, seed: int = 0) -> None:
        self.folds = folds
        self.seed = seed

    def fit(self, steps: Sequence[StepShape] | Observations, durations: Sequence[float] | Column) -> Fitter:
        """Learns from `n` steps and their durations in ns, `(n,)`.

        Raises:
            NotEnoughDataError: fewer than eight steps, or a duration that is not positive.
        """
        seen = steps if isinstance(steps, Observations) else shapes_to_observations(steps)
        ns = np.asarray(durations, dtype=np.float64)
        if len(seen) != len(ns):
            raise NotEnoughDataError(f"{len(seen)} steps but {len(ns)} durations")
        if len(ns) < 8:
            raise NotEnoughDataError(f"{len(ns)} steps are too few to fit, at least 8 are needed")
        if not (ns > 0).all() or not np.isfinite(ns).all():
            raise NotEnoughDataError("every duration must be a positive number of nanoseconds")
        self.dense_, self.coefficients_ = _solve(seen, ns)
        self.jumps_ = _jumps(seen, ns, self.dense_)
        self.predicted_ = self.predict(seen)
        self.residuals_ = ns / self.predicted_ - 1.0
        self.cv_predicted_ = self._cross_validate(seen, ns)
        self.cv_error_ = errors_by_kind(seen.kind, self.cv_predicted_, ns)
        return self

    def predict(self, steps: Sequence[StepShape] | Observations) -> Column:
        """Durations in ns, `(n,)`, before rounding."""
        seen = steps if isinstance(steps, Observations) else shapes_to_observations(steps)
        return _predict(seen, self.dense_, self.coefficients_)

    def _cross_validate(self, seen: Observations, ns: Column) -> Column:
        order = np.random.default_rng(self.seed).permutation(len(ns))
        predicted = np.empty_like(ns)
        for fold in np.array_split(order, min(self.folds, len(ns))):
            rest = np.ones(len(ns), dtype=bool)
            rest[fold] = False
            dense, coefficients = _solve(seen.take(rest), ns[rest])
            predicted[fold] = _predict(seen.take(fold), dense, coefficients)
        return predicted


def errors_by_kind(kinds: NDArray[np.str_], predicted: Column, measured: Column) -> dict[str, Errors]:
    """Relative errors of all steps, and of the decode, prefill and mixed ones apart. `(n,)` each."""
    found = {}
    for kind in ("all", "decode", "prefill", "mixed"):
        rows = np.ones(len(measured), dtype=bool) if kind == "all" else kinds == kind
        if rows.any():
            found[kind] = Errors.of(predicted[rows] / measured[rows] - 1.0)
    return found


def _terms(seen: Observations) -> Column:
    """Design matrix of the physical terms, `(n, 7)`, in the order of `Coefficients`."""
    columns = (
        seen.chunks,
        seen.pairs,
        seen.prefill_context,
        seen.decode_sequences,
        seen.decode_context,
        np.minimum(seen.sampled, 1.0),
        seen.sampled,
    )
    return np.column_stack(columns)


def _ramps(tokens: Column, knots: Column) -> Column:
    """Hat-free basis of monotone piecewise linear functions, `(n, knots)`: a one, then a ramp from 0 to 1 for each gap."""
    gaps = np.diff(knots)
    rise = np.clip((tokens[:, None] - knots[None, :-1]) / gaps[None, :], 0.0, 1.0)
    return np.column_stack([np.ones(len(tokens)), rise])


def _knots(tokens: Column) -> Column:
    found = np.unique(tokens)
    if len(found) <= _MOST_KNOTS:
        return found
    # A step log holds hundreds of token counts: keep the small ones, where kernels change, and thin out the rest evenly.
    at = np.unique(np.round(np.geomspace(1, len(found), _MOST_KNOTS)).astype(int)) - 1
    kept: Column = found[at]
    return kept


def _solve(seen: Observations, ns: Column) -> tuple[tuple[tuple[int, float], ...], Coefficients]:
    from scipy.optimize import nnls  # not needed to measure: a machine that does only that may have no SciPy

    knots = _knots(seen.tokens)
    matrix = np.column_stack([_ramps(seen.tokens, knots), _terms(seen)]) / ns[:, None]
    scale = np.sqrt((matrix**2).sum(axis=0))
    scale[scale == 0] = 1.0
    # The default of three iterations an unknown is too few where columns nearly repeat each other.
    solution, _ = nnls(matrix / scale, np.ones(len(ns)), maxiter=30 * matrix.shape[1])
    solution = solution / scale
    heights = np.cumsum(solution[: len(knots)])
    dense = tuple((int(t), float(h)) for t, h in zip(knots, heights, strict=True))
    return dense, Coefficients(**dict(zip(Coefficients.model_fields, map(float, solution[len(knots) :]), strict=True)))


def _predict(seen: Observations, dense: tuple[tuple[int, float], ...], coefficients: Coefficients) -> Column:
    weights = np.array([getattr(coefficients, name) for name in Coefficients.model_fields])
    order = np.argsort(seen.tokens, kind="stable")
    table = np.empty(len(seen))
    table[order] = dense_ns(dense, seen.tokens[order])
    return np.asarray(table + _terms(seen) @ weights)


def _jumps(seen: Observations, ns: Column, dense: tuple[tuple[int, float], ...]) -> tuple[Jump, ...]:
    """Steps up (much steeper than both neighbours, by a tenth or more) and dips that monotonicity has ironed out."""
    from scipy.optimize import lsq_linear

    at = np.array([t for t, _ in dense], dtype=np.float64)
    heights = np.array([v for _, v in dense])
    if len(at) < 4:
        return ()
    rises, slopes = np.diff(heights), np.diff(heights) / np.diff(at)
    found = []
    for j in range(1, len(rises)):
        around = max(slopes[j - 1], slopes[j + 1] if j + 1 < len(slopes) else 0.0)
        if rises[j] > 0.1 * heights[j] and slopes[j] > 3.0 * around:
            found.append(Jump(kind="step", tokens_from=int(at[j]), tokens_to=int(at[j + 1]), ns=float(rises[j])))
    matrix = np.column_stack([_ramps(seen.tokens, at), _terms(seen)]) / ns[:, None]
    scale = np.sqrt((matrix**2).sum(axis=0))
    scale[scale == 0] = 1.0
    lower = np.zeros(matrix.shape[1])
    lower[1 : len(at)] = -np.inf
    with np.errstate(invalid="ignore"):  # SciPy multiplies 0 by infinity where a step of its solver hits no bound
        free = lsq_linear(matrix / scale, np.ones(len(ns)), bounds=(lower, np.inf), lsmr_tol="auto").x / scale
    for j, rise in enumerate(free[1 : len(at)]):
        if rise < -0.03 * heights[j]:
            found.append(Jump(kind="dip", tokens_from=int(at[j]), tokens_to=int(at[j + 1]), ns=float(rise)))
    return tuple(sorted(found, key=lambda jump: jump.tokens_from))
