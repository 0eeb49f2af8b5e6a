"""Is the prediction true of a real engine? Measured runs, simulated request by request, and compared by load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibration.fit_log import fit_log
from calibration.measured.folder import Found, read_folder, same_load
from calibration.measured.llmservingsim import TIMESERIES, ScheduleGap, kernels_of, schedule_gap
from calibration.measured.overhead import Overhead, fit_overhead, with_host_time
from calibration.measured.run import MeasuredRun
from calibration.measured.source import MeasuredSource, Steps, load_source
from calibration.step_log import read_iterations
from scenarios.cost import AUTO, Cost
from scenarios.errors import InputError, unknown
from scenarios.schema import Scenario
from scenarios.trace_options import TimeUnit
from sim.cost import CostModel
from sim.profiles import AnyProfile, load_profile
from studies.aspects.step_costs import cost_of, priced, profile_cost, profile_of
from studies.measured.engine import Engine, engine_of
from studies.measured.loads import Load, Replays, compared
from studies.progress import Progress
from studies.reports.limits import NOT_MODELLED


@dataclass
class Measured:
    """A validation against measured runs: what `studies.measured.report` shows. seeds: of the noise that was drawn, if any."""

    found: Found
    source: str | None
    engine: Engine
    cost: CostModel
    profile: AnyProfile | None
    overhead: Overhead
    loads: list[Load]
    not_modelled: list[str]
    seeds: int = 0
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
    noise: bool = True,
    progress: Progress | None = None,
) -> Measured:
    """Simulates every run of a folder and compares.

    Args:
        scenario: engine, model, hardware and cost, instead of what the folder and its source say; its workload is not used.
        profile: step costs, instead of the scenario's, or of a step log or kernels in the folder; `auto` for the shipped
            profile that fits.
        serving: name or file of a `MeasuredSource`; if not given, the one beside the data or the one that it is recognised by.
        fit_rows: iterations of the folder's step log to fit step costs on.
        overhead_from: runs to set the terms between engine and client on; they are not validated. Empty: no such terms.
        only: names of runs to read.
        noise: draw what steps take beside their shape, where the profile holds it; figures are means over several draws.

    Raises:
        InputError: anything that the user can mend.
    """
    folder = Path(folder)
    name, source = load_source(serving, folder)
    found = read_folder(folder, unit=unit, only=only)
    source = _overridden(source, fit_rows, overhead_from, found, only)
    engine = engine_of(found, source, scenario, model, hardware)
    fitted = _profile(found, source, engine.scenario, profile)
    setting = [found.runs[n] for n in source.overhead_from]

    def cost_with(step_ns: int) -> CostModel:
        if fitted is not None:
            return priced(with_host_time(fitted, step_ns))
        if step_ns:
            raise InputError("--overhead-from needs measured step costs; give --profile, or a step log and --fit-rows")
        return cost_of(engine.scenario)

    def seen(run: MeasuredRun, step_ns: int) -> MeasuredRun:
        return Replays(engine.scenario, cost_with(step_ns), source.ready_check).seen(run)

    overhead = fit_overhead(setting, seen) if setting else Overhead(client_ns=engine.client_ns)
    cost = cost_with(overhead.step_ns)
    drawn = fitted.noise if noise and fitted is not None else None
    replays = Replays(engine.scenario, cost, source.ready_check, overhead.client_ns, drawn)
    loads = []
    groups = same_load(list(found.runs.values()))
    for done, runs in enumerate(groups):
        if progress is not None:
            progress(f"simulating {runs[0].name}", done / len(groups))
        kept = [run for run in runs if run.name not in source.overhead_from]
        if kept:
            loads.append(compared(runs, kept, replays, engine))
    if not loads:
        raise InputError(
            f"{folder}: every run sets overhead, so none is left to validate; leave one out of --overhead-from"
        )
    return Measured(
        found,
        name,
        engine,
        cost,
        fitted,
        overhead,
        loads,
        _not_modelled(found, source, cost, drawn is not None),
        len(replays.draws),
        _queues(found, replays) if found.layout == "llmservingsim" else None,
    )


def _queues(found: Found, replays: Replays) -> ScheduleGap | None:
    run = next(iter(found.runs.values()))
    if not (found.folder / TIMESERIES).is_file():
        return None
    return schedule_gap(found.folder, run, replays.records(run))


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


def _profile(found: Found, source: MeasuredSource, scenario: Scenario, given: str | Path | None) -> AnyProfile | None:
    """Measured step costs: the given profile, the scenario's, the folder's step log or its kernels; None for the roofline.

    Raises:
        InputError: a profile of something else than the scenario serves.
    """
    if given is not None:
        asked = scenario.model_copy(update={"cost": Cost(source="profile", profile=AUTO)})
        found_profile = profile_of(asked) if str(given) == AUTO else load_profile(given)
        assert found_profile is not None
        profile_cost(found_profile, scenario)  # refused before any work
        return found_profile
    if scenario.cost.source == "profile":
        return profile_of(scenario)
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
        return kernels_of(found.folder, scenario)
    return None


def _not_modelled(found: Found, source: MeasuredSource, cost: CostModel, noise: bool) -> list[str]:
    said = list(dict.fromkeys(run.stated["failed"] for run in found.runs.values() if "failed" in run.stated))
    if source.ready_check is False and found.layout == "vllm bench":
        said.append("what a readiness check before the run left in the prefix cache")
    said.append("the engine's own schedule: no log of this run says when its steps began, so it cannot be replayed")
    if not noise:
        said.append("residual noise of step times: every step takes the fitted mean")
    return [*said, *source.not_modelled, *getattr(getattr(cost, "profile", None), "not_modelled", ()), *NOT_MODELLED]
