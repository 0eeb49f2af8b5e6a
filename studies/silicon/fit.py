"""Fitting the constants of `calibration.silicon.constants` on the half of the points that is for it: `python -m studies.silicon.fit ENGINE`.

The worst relative errors of a few points do not decide: what is made small is the mean of absolute errors, of TTFT and TPOT in
the proportion of the targets.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from calibration.silicon.constants import Constants
from calibration.silicon.points import Point, find_file, read_points
from calibration.silicon.scope import exclusion_of, model_of, why_not
from studies.silicon.replay import Job, predict

SYSTEMS = ("h100_sxm", "h200_sxm")
WEIGHTS = (1.0, 2.5)  # of TTFT and TPOT: targets are 10 and 4 %
TRIALS = 40
STEPS = (0.2e-3, 0.01e-3, 0.05)
LEAST, MOST = (0.0, 0.0, 1.0), (20e-3, 1e-3, 2.0)


def fitted_points(engine: str, model: str = "") -> list[Point]:
    """Points that constants may be fitted on: dense models on H100 and H200, not excluded by name."""
    points = [
        p for p in read_points(find_file())
        if p.half == "fitted" and p.engine == engine and p.system in SYSTEMS and why_not(p) is None
        and exclusion_of(p) is None and model in p.model and _dense(p)
    ]  # fmt: skip
    return points


def errors(points: Sequence[Point], constants: Constants) -> np.ndarray:
    """Relative errors of TTFT and TPOT, `(points, 2)`; points that cannot be run are left out."""
    found = predict([Job(point, constants) for point in points])
    pairs = [
        (p.ttft / point.ttft - 1, p.tpot / point.tpot - 1)
        for point, p in zip(points, found, strict=True)
        if p.ttft is not None and p.tpot is not None
    ]
    return np.array(pairs)


def fit(points: Sequence[Point], start: Constants) -> Constants:
    """Constants that make the weighted mean absolute error least, from `start` on, by the simplex method."""
    from scipy.optimize import minimize

    def unpacked(x: np.ndarray) -> Constants:
        step, sequence, gemm = (
            float(np.clip(value * size, low, high))
            for value, size, low, high in zip(x, STEPS, LEAST, MOST, strict=True)
        )
        return Constants(step, sequence, large_gemm=gemm)

    def loss(x: np.ndarray) -> float:
        constants = unpacked(x)
        ttft, tpot = np.abs(errors(points, constants)).mean(axis=0)
        print(
            f"{constants.step * 1e3:.3f} ms, {constants.sequence * 1e3:.4f} ms, x{constants.large_gemm:.3f}: {ttft:.2%} {tpot:.2%}"
        )
        return float(WEIGHTS[0] * ttft + WEIGHTS[1] * tpot)

    first = np.array([start.step / STEPS[0], start.sequence / STEPS[1], start.large_gemm / STEPS[2]])
    simplex = np.vstack([first, *(first + unit for unit in np.eye(3))])
    best = minimize(
        loss, first, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": TRIALS, "xatol": 0.1}
    )
    return unpacked(best.x)


def _dense(point: Point) -> bool:
    model = model_of(point)
    return model is not None and not model.num_experts


if __name__ == "__main__":
    engine, model = [*sys.argv[1:], ""][:2]
    print(fit(fitted_points(engine, model), Constants(0.9e-3, 0.04e-3, 1.05)))
