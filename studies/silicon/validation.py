"""Are data-centre GPUs predicted that we do not own? Measured closed-loop points against their simulation, group by group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from calibration.silicon.points import Point, find_file, read_points, remeasured
from calibration.silicon.scope import population_of, why_not
from scenarios.errors import InputError, unknown
from studies.progress import Progress
from studies.silicon.replay import Job, Prediction, predict, run_all
from studies.silicon.report import VARIANTS, SiliconReport

FOLDER = Path("out/silicon")


def validate(
    *,
    only: str | None = None,
    limit: int | None = None,
    folder: Path = FOLDER,
    processes: int = 2,
    tell: Progress | None = None,
    file: Path | None = None,
    run: Callable[[Sequence[Job]], list[Prediction]] = predict,
) -> SiliconReport:
    """Simulates every point that can be, with and without fitted constants.

    only: `system=...,engine=...,model=...`: points of which each is equal (a model by a part of its name). limit: the first so many
    of them. folder: where results are kept, so that a second call, or one after an interrupt, computes only what is missing.

    Raises:
        InputError: the tables are not installed, a filter that there is not, or one that no point passes.
    """
    points = [p for p in read_points(file or find_file()) if passes(p, parsed(only))]
    if not points:
        raise InputError(f"--only: found {only!r}, but no point of the file is of these")
    noise = remeasured(p for p in points if not p.disaggregated)
    reasons = [why_not(p) for p in points]
    not_run = Counter((why, p.system, p.engine, p.short_model) for p, why in zip(points, reasons, strict=True) if why)
    kept = [p for p, why in zip(points, reasons, strict=True) if why is None][:limit]
    jobs = [Job(p, variant(p.engine)) for variant in VARIANTS.values() for p in kept]
    found = run_all(jobs, folder, processes=processes, tell=tell, run=run)
    n = len(kept)
    predictions = {name: found[i * n : (i + 1) * n] for i, name in enumerate(VARIANTS)}
    return SiliconReport(kept, predictions, not_run, noise)


_FILTERS: dict[str, Callable[[Point, str], bool]] = {
    "system": lambda p, value: p.system == value,
    "engine": lambda p, value: p.engine == value,
    "model": lambda p, value: value.lower() in p.model.lower(),
    "precision": lambda p, value: p.precision == value,
    "half": lambda p, value: p.half == value,
    "population": lambda p, value: population_of(p).lower() == value.lower(),
    "tp": lambda p, value: str(p.tensor_parallel) == value,
    "concurrency": lambda p, value: str(p.concurrency) == value,
}


def parsed(only: str | None) -> dict[str, str]:
    """`system=h100_sxm,engine=vllm` as a mapping.

    Raises:
        InputError: not of this form, or a name that is no filter.
    """
    found = {}
    for part in (only or "").split(","):
        if part.strip():
            name, equals, value = part.strip().partition("=")
            if not equals or not value:
                raise InputError(f"--only: found {part.strip()!r}, but NAME=VALUE is needed, as in system=h100_sxm")
            if name not in _FILTERS:
                raise InputError(f"--only: {unknown('filter', name, _FILTERS)}")
            found[name] = value
    return found


def passes(point: Point, wanted: dict[str, str]) -> bool:
    """Whether a point is of all that was asked for."""
    return all(_FILTERS[name](point, value) for name, value in wanted.items())
