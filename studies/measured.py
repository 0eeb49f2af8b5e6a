"""Is the prediction true of a real engine? Measured runs, simulated request by request, and compared by load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibration import validate as judged
from calibration.fit_log import fit_log
from calibration.measured.folder import Found, read_folder, same_load
from calibration.measured.llmservingsim import ScheduleGap, schedule_gap
from calibration.measured.overhead import Overhead, fit_overhead, with_host_time
from calibration.measured.run import MeasuredRun, as_seen
from calibration.measured.source import MeasuredSource, Steps, load_source
from calibration.step_log import read_iterations
from scenarios.errors import InputError, unknown
from scenarios.schema import Scenario
from scenarios.trace_options import TimeUnit
from serving.records import Records
from sim.cost import CostModel
from sim.operator_profile import OperatorProfile
from sim.profiles import AnyProfile, load_profile
from studies.measured_engine import Engine, engine_of
from studies.run import Progress
from studies.step_costs import cost_of, profile_cost

METRICS = (
    *(f"{stat}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for stat in ("mean", "p50", "p90", "p95", "p99")),
    "output_throughput",
    "request_throughput",
)
SHIFTED = ("mean_ttft_ms", "mean_e2el_ms")
SPREADS = (0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5)
"""Factors of the gaps between arrivals at which a load is simulated to express an error as a shift in load."""


@dataclass
class Load:
    """Runs of one load, and what became of those that are validated.

    runs: all repeats. simulated: by name of a validated run. rows: means of the validated runs against means of their
    simulations; noise is that of all repeats. by_run: the same of each. shift: by metric, the change of load at which the
    simulation has the measured mean, None beyond the loads that were tried.
    interval: simulated values by metric at both ends of the KV capacity, where that is not stated.
    """

    name: str
    runs: list[MeasuredRun]
    simulated: dict[str, MeasuredRun]
    rows: list[judged.OutcomeRow]
    by_run: dict[str, list[judged.OutcomeRow]]
    matched: dict[str, judged.Matched]
    shift: dict[str, float | None]
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    few: dict[str, str] = field(default_factory=dict)


@dataclass
class Measured:
    """A validation against measured runs: what `studies.measured_report` shows."""

    found: Found
    source: str | None
    engine: Engine
    cost: CostModel
    profile: AnyProfile | None
    overhead: Overhead
    loads: list[Load]
    not_modelled: list[str]
    queues: ScheduleGap | None = None
    """What ran and waited, tick by tick, where the run recorded it."""


def validate_measured(
    folder: Path | str,
    scenario: Scenario | None = None,
    *,
    model: str | None = None,
    hardware: str | None = None,
    profile: str | Path | None = None,
    serving: str | Path | None = None,
    fit_rows: str | None = None,
    overhead_from: Sequence[str] | None = None,
    only: Sequence[str] = (),
    unit: TimeUnit | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Simulates every run of a folder and compares.

    Args:
        scenario: engine, model, hardware and cost, instead of what the folder and its source say; its workload is not used.
        profile: step costs, instead of a step log or kernels in the folder, or the scenario's.
        serving: name or file of a `MeasuredSource`; if not given, the one beside the data or the one that it is recognised by.
        fit_rows: iterations of the folder's step log to fit step costs on.
        overhead_from: runs to set the terms between engine and client on; they are not validated. Empty: no such terms.
        only: names of runs to read.

    Raises:
        InputError: anything that the user can mend.
    """
    folder = Path(folder)
    name, source = load_source(serving, folder)
    found = read_folder(folder, unit=unit, only=only)
    source = _overridden(source, fit_rows, overhead_from, found, only)
    engine = engine_of(found, source, scenario, model, hardware)
    fitted = _profile(found, source, engine.scenario, profile, fit_rows)
    setting = [found.runs[n] for n in source.overhead_from]

    def cost_with(step_ns: int) -> CostModel:
        if fitted is not None:
            return _cost(with_host_time(fitted, step_ns), engine.scenario)
        if step_ns:
            raise InputError("--overhead-from needs measured step costs; give --profile, or a step log and --fit-rows")
        return cost_of(engine.scenario)

    def seen(run: MeasuredRun, step_ns: int) -> MeasuredRun:
        return _simulated(run, engine.scenario, cost_with(step_ns), source)

    overhead = fit_overhead(setting, seen) if setting else Overhead(client_ns=engine.client_ns)
    cost = cost_with(overhead.step_ns)
    loads = []
    groups = same_load(list(found.runs.values()))
    for done, runs in enumerate(groups):
        if progress is not None:
            progress(f"simulating {runs[0].name}", done / len(groups))
        kept = [run for run in runs if run.name not in source.overhead_from]
        if kept:
            loads.append(_load(runs, kept, engine, cost, source, overhead))
    if not loads:
        raise InputError(
            f"{folder}: every run sets overhead, so none is left to validate; leave one out of --overhead-from"
        )
    queues = _queues(found, engine.scenario, cost, source) if found.layout == "llmservingsim" else None
    return Measured(
        found, name, engine, cost, fitted, overhead, loads, _not_modelled(found, source, cost, loads), queues
    )


def _queues(found: Found, scenario: Scenario, cost: CostModel, source: MeasuredSource) -> ScheduleGap | None:
    run = next(iter(found.runs.values()))
    if not (found.folder / "timeseries.csv").is_file():
        return None
    return schedule_gap(found.folder, run, _records(run, scenario, cost, source))


def _cost(profile: AnyProfile, scenario: Scenario) -> CostModel:
    if isinstance(profile, OperatorProfile):
        from sim.operator_cost import OperatorCost

        return OperatorCost(profile)
    return profile_cost(profile, scenario)


def _overridden(
    source: MeasuredSource, fit_rows: str | None, overhead_from: Sequence[str] | None, found: Found, only: Sequence[str]
) -> MeasuredSource:
    """The source with what the command line says instead."""
    changed: dict[str, Any] = {}
    if fit_rows is not None:
        changed["steps"] = (source.steps or Steps()).model_copy(update={"rows": fit_rows})
    if overhead_from is not None:
        for run in overhead_from:
            if run not in found.runs:
                raise InputError(f"--overhead-from: {unknown('run', run, found.runs)}")
        changed["overhead_from"] = tuple(overhead_from)
    elif missing := [run for run in source.overhead_from if run not in found.runs]:
        where = f"{found.folder}: {', '.join(missing)}: named by overhead_from"
        if not only:
            raise InputError(f"{where}, but there is no such run")
        raise InputError(f"{where}, so --only must name them too, or give --overhead-from")
    return source.model_copy(update=changed)


def _profile(
    found: Found, source: MeasuredSource, scenario: Scenario, given: str | Path | None, fit_rows: str | None
) -> AnyProfile | None:
    """Measured step costs: the given profile, the folder's step log or its kernels; None where the scenario's cost holds."""
    if given is not None:
        return load_profile(given)
    config = scenario.engine_config()
    if source.steps is not None:
        path = found.folder / source.steps.file
        log = read_iterations(path)
        return fit_log(
            log.take(source.steps.rows) if source.steps.rows else log,
            name=f"{found.folder.name} {path.name}",
            model=scenario.model.name,
            dtype=scenario.dtype,
            kv_dtype=scenario.kv_dtype,
            device="cpu" if scenario.hardware.is_cpu else "cuda",
            engine=scenario.engine.preset,
            input_tokens=source.steps.input_tokens,
            budget=config.max_num_batched_tokens,
            block_size=config.block_size,
        )
    if found.layout == "llmservingsim" and (found.folder / "kernels").is_dir():
        from calibration.measured.llmservingsim import kernels_of

        return kernels_of(found.folder, next(iter(found.runs.values())), scenario)
    if scenario.cost.source == "profile":
        return load_profile(str(scenario.cost.profile))
    return None


def _simulated(
    run: MeasuredRun,
    scenario: Scenario,
    cost: CostModel,
    source: MeasuredSource,
    *,
    client_ns: int = 0,
    spread: float = 1.0,
) -> MeasuredRun:
    """The run's requests in the simulation, as a client sees them; row i is row i of the run."""
    records = _records(run, scenario, cost, source, spread)
    seen = as_seen(records, name=run.name, before_ns=client_ns, by_engine=run.sent_ns is not None)
    return seen.take(np.arange(1, len(seen))) if source.ready_check else seen


def _records(
    run: MeasuredRun, scenario: Scenario, cost: CostModel, source: MeasuredSource, spread: float = 1.0
) -> Records:
    """The run's requests in the simulation."""
    from sim.cluster import simulate

    sent = run.after_ready_check() if source.ready_check else run
    records = simulate(
        scenario.engine_config(), sent.workload(spread=spread), cost, replicas=scenario.replicas, router=scenario.router
    )
    if not records.finished.all():
        refused = records.info["rejected"]
        why = f": {refused[0]['reason']}" if isinstance(refused, list) and refused else ""
        raise InputError(
            f"{run.source}: {int((~records.finished).sum())} of {len(run)} requests cannot run in this engine{why}; its settings "
            f"are not those of the run"
        )
    return records


def _load(
    runs: list[MeasuredRun],
    kept: list[MeasuredRun],
    engine: Engine,
    cost: CostModel,
    source: MeasuredSource,
    overhead: Overhead,
) -> Load:
    def simulated(run: MeasuredRun, scenario: Scenario = engine.scenario, spread: float = 1.0) -> MeasuredRun:
        return _simulated(run, scenario, cost, source, client_ns=overhead.client_ns, spread=spread)

    found = {run.name: simulated(run) for run in kept}
    live = {run.name: run.summary() for run in runs}
    predicted = {name: run.summary() for name, run in found.items()}
    rows = [
        _row(metric, [live[r.name] for r in kept], list(predicted.values()), list(live.values())) for metric in METRICS
    ]
    by_run = {
        run.name: [
            row
            for metric in METRICS
            if (row := _row(metric, [live[run.name]], [predicted[run.name]], list(live.values()))) is not None
        ]
        for run in kept
    }
    interval: dict[str, tuple[float, float]] = {}
    if engine.lowest is not None and engine.highest is not None:
        ends = [simulated(kept[0], scenario).summary() for scenario in (engine.lowest, engine.highest)]
        interval = {m: (ends[0][m], ends[1][m]) for m in METRICS if m in ends[0] and m in ends[1]}
    first = found[kept[0].name]
    columns = (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "e2e"))
    matched = {
        label: match
        for label, column in columns
        if (match := judged.matched(getattr(kept[0], column), getattr(first, column))) is not None
    }
    few = {key: why for summary in live.values() for key, why in summary["few"].items()}
    return Load(
        _name(runs),
        runs,
        found,
        [row for row in rows if row is not None],
        by_run,
        matched,
        _shift(kept[0], lambda spread: simulated(kept[0], spread=spread)),
        interval,
        few,
    )


def _row(
    metric: str,
    live: Sequence[Mapping[str, Any]],
    simulated: Sequence[Mapping[str, Any]],
    repeats: Sequence[Mapping[str, Any]],
) -> judged.OutcomeRow | None:
    """Means of measured against means of simulated; the noise is that of all repeats."""
    if any(metric not in summary for summary in (*live, *simulated)):
        return None
    measured = sum(float(s[metric]) for s in live) / len(live)
    predicted = sum(float(s[metric]) for s in simulated) / len(simulated)
    error = predicted / measured - 1.0 if measured else (0.0 if predicted == 0 else float("inf"))
    floor = judged.noise([float(s[metric]) for s in repeats])
    return judged.OutcomeRow(metric, measured, predicted, error, floor, judged.verdict(error, floor))


def _shift(run: MeasuredRun, simulated: Callable[[float], MeasuredRun]) -> dict[str, float | None]:
    """By metric: so much more (or less) load gives the simulation the measured mean."""
    tried = [simulated(spread).summary(()) for spread in SPREADS]
    live = run.summary(())
    found: dict[str, float | None] = {}
    for metric in SHIFTED:
        if metric not in live:
            continue
        values = np.array([summary[metric] for summary in tried])
        falling = np.minimum.accumulate(values)  # wider gaps, less waiting; a wiggle is not a load
        if not falling[-1] <= live[metric] <= falling[0]:
            found[metric] = None
            continue
        spread = float(np.interp(-live[metric], -falling, np.array(SPREADS)))
        found[metric] = 1.0 / spread - 1.0
    return found


def _name(runs: Sequence[MeasuredRun]) -> str:
    """What runs of a load are called together: what their names begin with alike, and the rate."""
    first, last = min(run.name for run in runs), max(run.name for run in runs)
    alike = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = first[:alike].rstrip("_-. ")
    rate = f"{runs[0].rate:.3g}/s" if np.isfinite(runs[0].rate) else f"{len(runs[0])} at once"
    return f"{common or first} ({rate})"


def _not_modelled(found: Found, source: MeasuredSource, cost: CostModel, loads: Sequence[Load]) -> list[str]:
    from studies.limits import NOT_MODELLED

    said = list(dict.fromkeys(run.stated["failed"] for run in found.runs.values() if "failed" in run.stated))
    if source.ready_check is False and found.layout == "vllm bench":
        said.append("what a readiness check before the run left in the prefix cache")
    said.append("the engine's own schedule: no log of this run says when its steps began, so it cannot be replayed")
    return [*said, *source.not_modelled, *getattr(getattr(cost, "profile", None), "not_modelled", ()), *NOT_MODELLED]
