"""Step costs fitted to what a serving engine logged of its steps: its own counts, or the step log of a run of ours.

A machine has slow minutes, and rare shapes may have been seen in one slow minute only. So each duration is taken relative to
how slow the rows around it were; errors are of the durations as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibration.features import Column, Observations, shapes_to_observations, steps_to_shapes
from calibration.fit import Fitter, NotEnoughDataError, errors_by_kind
from calibration.noise import noise_of
from calibration.step_log import IterationLog, shapes
from scenarios.errors import InputError
from serving.plan import StepShape
from serving.records import MOVE_COLUMNS, STEP_COLUMNS
from sim.profile import Profile
from sim.profile_parts import Domain, Range, Source

_REACH = 40
"""Rows to either side that say how slow the machine was."""

_OUTLYING = 0.3
"""Logarithm of a residual beyond which a row says nothing more of its neighbours: it was interrupted."""


def fit_log(
    log: IterationLog,
    *,
    name: str,
    model: str,
    dtype: str,
    kv_dtype: str,
    created: str = "",
    device: str = "cuda",
    engine: str = "",
    input_tokens: int | None = None,
    budget: int | None = None,
    block_size: int = 16,
    folds: int = 5,
    seed: int = 0,
) -> Profile:
    """A profile of the rows of a log, with its residuals and how they hang together.

    Raises:
        InputError: too few rows whose contexts are known.
    """
    found = shapes(log, input_tokens=input_tokens, budget=budget, block_size=block_size)
    kept = np.array([i for i, shape in enumerate(found) if shape is not None], dtype=np.int64)
    details = {
        "log": Path(log.source).name,
        "rows": f"{len(kept)} of {len(log)}, iterations {log.iteration[0]} to {log.iteration[-1]}",
        "contexts": "reconstructed: counts replayed first come, first served",
    }
    if engine:
        details["engine"] = engine
    return _fitted(
        log.source,
        [shape for shape in found if shape is not None],
        log.elapsed_ns[kept],
        log.iteration[kept],
        Source(device=device, clock="engine", details=details),
        {"name": name, "model": model, "dtype": dtype, "kv_dtype": kv_dtype, "created": created, "block_size": block_size},
        log.hash(),
        folds,
        seed,
    )  # fmt: skip


def fit_own_steps(
    file: Path | str,
    *,
    name: str,
    model: str,
    dtype: str,
    kv_dtype: str,
    created: str = "",
    device: str = "cuda",
    clock: str = "device",
    block_size: int | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Profile:
    """A profile of the `steps.parquet` of an executed run, or of the result folder that holds it. Steps without work are left out.

    Raises:
        InputError: not such a file, several replicas in it, or too few steps.
    """
    import pyarrow as pa
    from pyarrow import parquet

    file = Path(file) / "steps.parquet" if Path(file).is_dir() else Path(file)
    try:
        table = parquet.read_table(file)
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file; an executed run's result folder has one") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{file}: not a step log in Parquet: {error}") from None
    if missing := [column for column in STEP_COLUMNS if column not in table.column_names]:
        raise InputError(f"{file}: no column {', '.join(missing)}; is it the steps.parquet of a run?")
    steps = {column: table[column].to_numpy().astype(np.int64) for column in STEP_COLUMNS}
    if len(np.unique(steps["replica"])) > 1:
        raise InputError(
            f"{file}: found steps of {len(np.unique(steps['replica']))} replicas, but one engine's log is needed"
        )
    ns = (steps["end_ns"] - steps["start_ns"]).astype(np.float64)
    some = (steps["prefill_tokens"] + steps["decode_sequences"] > 0) & (ns > 0)
    for column in MOVE_COLUMNS:  # such a step is more than its shape
        if column in table.column_names:
            some &= table[column].to_numpy() == 0
    kept = {column: values[some] for column, values in steps.items()}
    content = np.column_stack([kept[column] for column in STEP_COLUMNS]).tobytes()
    return _fitted(
        str(file),
        steps_to_shapes(kept),
        ns[some],
        kept["step"],
        Source(device=device, clock=clock, details={"log": file.name, "rows": f"{int(some.sum())} of {len(some)}"}),
        {"name": name, "model": model, "dtype": dtype, "kv_dtype": kv_dtype, "created": created, "block_size": block_size},
        hashlib.sha256(content).hexdigest()[:16],
        folds,
        seed,
    )  # fmt: skip


def _fitted(
    where: str,
    known: Sequence[StepShape],
    ns: Column,
    positions: NDArray[np.int64],
    source: Source,
    about: dict[str, str | int | None],
    data_hash: str,
    folds: int,
    seed: int,
) -> Profile:
    """Steps as they followed one another, and how long each took."""
    try:
        drift = _drift_of(known, ns, seed)
        fitted = Fitter(folds=folds, seed=seed).fit(known, ns / drift)
    except NotEnoughDataError as error:
        raise InputError(f"{where}: {error} (steps whose contexts are known)") from None
    seen = shapes_to_observations(known)
    residuals = ns / fitted.predicted_ - 1.0
    return Profile.model_validate(
        about
        | {
            "source": source,
            "domain": _domain(seen, known),
            "dense": fitted.dense_,
            "coefficients": fitted.coefficients_,
            "jumps": fitted.jumps_,
            "residuals": tuple(float(q) for q in np.percentile(residuals, np.arange(101))),
            "cv_error": errors_by_kind(seen.kind, fitted.cv_predicted_, ns),
            "noise": noise_of(residuals, positions),
            "data_hash": data_hash,
        }
    )


def lag_one(values: Column) -> float:
    """Autocorrelation of neighbours, `(n,)`; 0 of a constant."""
    around = values - values.mean()
    variance = float((around * around).mean())
    return float((around[1:] * around[:-1]).mean()) / variance if variance > 0 else 0.0


def _drift_of(known: Sequence[StepShape], ns: Column, seed: int) -> Column:
    """How slow the machine was around each row, mean 1, `(n,)`, by the residuals of a plain fit.

    Once and no further: going on, what a load's shapes cost and how slow the machine was meanwhile are told apart ever less.
    """
    plain = Fitter(folds=2, seed=seed).fit(known, ns)
    residuals = np.clip(np.log(ns / plain.predicted_), -_OUTLYING, _OUTLYING)
    drift = np.exp(_around(residuals, lag_one(residuals)))
    return np.asarray(drift / drift.mean())


def _around(values: Column, correlation: float) -> Column:
    """Mean of the values around each, without itself; at distance k it counts `correlation ** k`."""
    if correlation <= 0:
        return np.full(len(values), values.mean())
    total, weight = np.zeros(len(values)), np.zeros(len(values))
    for k in range(1, min(_REACH, len(values) - 1) + 1):
        share = correlation**k
        for to, of in ((slice(k, None), slice(None, -k)), (slice(None, -k), slice(k, None))):
            total[to] += share * values[of]
            weight[to] += share
    return np.asarray(total / weight)


def _domain(seen: Observations, known: Sequence[StepShape]) -> Domain:
    chunks = [chunk for shape in known for chunk in shape.prefill]
    longest = max((shape.decode_max_context for shape in known), default=0)

    def span(values: NDArray[np.float64] | list[int]) -> Range:
        found = np.asarray(values)
        return Range(min=int(found.min()), max=int(found.max())) if len(found) else Range(min=0, max=0)

    return Domain(
        tokens=span(seen.tokens),
        prefill_query=span([query for query, _ in chunks]),
        prefill_context=span([context for _, context in chunks]),
        decode_sequences=span(seen.decode_sequences),
        decode_context=Range(min=0, max=max(int(seen.decode_context.max()), longest)),
        sampled=span(seen.sampled),
    )
