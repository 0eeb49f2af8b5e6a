"""`servetwin validate`: executions of our own engine, measured runs, or measured points, against their simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from studies.commands import measured as measured_runs
from studies.commands import silicon as silicon_command
from studies.commands.options import (
    Clock,
    Device,
    Json,
    Limit,
    Out,
    Profile,
    Prompts,
    Seed,
    Set,
    Speedup,
    Trace,
)
from studies.reports import terminal


def validate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")
    ] = None,
    trace: Trace = None,
    limit: Limit = None,
    speedup: Speedup = None,
    set_: Set = None,
    seed: Seed = None,
    out: Out = None,
    as_json: Json = False,
    device: Device = "cpu",
    clock: Clock = "device",
    repeats: Annotated[
        int, typer.Option(metavar="N", min=1, help="Executions of the scenario and of each variant.")
    ] = 3,
    num_prompts: Prompts = None,
    profile: Profile = None,
    ranking: Annotated[
        bool, typer.Option(help="Also rank six policies (two with drafts or asynchronous scheduling); executes each.")
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Calibrate on a coarse grid.")] = False,
    measured: measured_runs.Measured = None,
    model: measured_runs.Model = None,
    hardware: measured_runs.Hardware = None,
    serving: measured_runs.Serving = None,
    fit_rows: measured_runs.FitRows = None,
    overhead_from: measured_runs.OverheadFrom = None,
    only: measured_runs.Only = None,
    time_unit: measured_runs.Unit = None,
    noise: measured_runs.Noise = None,
    silicon: silicon_command.Silicon = False,
    processes: silicon_command.Processes = None,
) -> None:
    """Compare what was measured with the simulation.

    Executions of a scenario here (schedule, step costs, outcome and ranking of policies, each apart), runs of a real engine
    (--measured), or points of data-centre GPUs (--silicon)."""
    from scenarios import InputError

    about_measured = {
        "model": model, "hardware": hardware, "serving": serving, "fit_rows": fit_rows, "overhead_from": overhead_from,
        "time_unit": time_unit, "noise": noise,
    }  # fmt: skip
    if not silicon:
        _refuse("is about measured points; give --silicon with it", {"processes": processes})
    of_a_scenario = {"trace": trace, "speedup": speedup, "num_prompts": num_prompts, "quick": quick or None}
    if silicon:
        if scenario is not None or measured is not None:
            raise InputError("--silicon brings its own points; leave the scenario and --measured out")
        _refuse("is about measured runs; give --measured DIR with it", about_measured)
        _refuse(
            "says nothing of measured points, which bring their own; leave it out",
            of_a_scenario | {"set": set_ or None, "seed": seed, "profile": profile},
        )
        silicon_command.validate(only=only, limit=limit, out=out, processes=processes, as_json=as_json)
    elif measured is not None:
        _refuse(
            "is about executing a scenario; a measured run brings its own requests", of_a_scenario | {"limit": limit}
        )
        measured_runs.validate(
            measured, scenario, overrides=set_ or [], seed=seed, profile=profile, only=only, out=out, as_json=as_json,
            **about_measured,
        )  # fmt: skip
    elif scenario is None:
        _refuse("is about measured runs; give --measured DIR with it", about_measured | {"only": only})
        raise InputError("give a scenario to execute and simulate, or --measured DIR, or --silicon")
    else:
        _refuse("is about measured runs; give --measured DIR with it", about_measured | {"only": only})
        _executed(
            scenario, trace, set_, seed, out, as_json, profile, quick, limit=limit, speedup=speedup,
            num_prompts=num_prompts, device=device, clock=clock, repeats=repeats, ranking=ranking,
        )  # fmt: skip


def _refuse(why: str, options: dict[str, Any]) -> None:
    """Raises InputError for the first option that was given."""
    from scenarios import InputError

    for name, value in options.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')}: {why}")


def _executed(
    scenario: str,
    trace: Path | None,
    given: list[str] | None,
    seed: int | None,
    out: Path | None,
    as_json: bool,
    profile: str | None,
    quick: bool,
    *,
    limit: int | None,
    speedup: float | None,
    num_prompts: int | None,
    **how: Any,
) -> None:
    """Executes a scenario, simulates it, and shows how far apart they are. how: device, clock, repeats, ranking."""
    import scenarios
    from scenarios import InputError
    from sim.profiles import load_profile
    from studies import results
    from studies.commands import bench_options
    from studies.validation import validate as check
    from studies.validation import write

    if quick and profile:
        raise InputError("--quick is about calibrating, which --profile replaces; give one of them")
    overrides = bench_options.joined(scenario, trace, given, num_prompts=num_prompts, limit=limit, speedup=speedup)
    loaded = scenarios.load(scenario, overrides=overrides, trace=trace, seed=seed)
    folder = results.folder_for(loaded.name, out)
    costs = load_profile(profile) if profile else None
    with terminal.progress_bar() as tell:
        found = check(loaded, profile=costs, grid="quick" if quick else "standard", progress=tell, **how)
    for done in found.executed:
        done.info["set"] = overrides
    if folder is not None:
        write(found, folder)
        terminal.say(f"wrote {folder}")
    if as_json:
        terminal.print_json(found.to_dict())
        return
    terminal.show_tables(found.tables(), [found.sentence])
