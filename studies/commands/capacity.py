"""`servetwin capacity`: how much load a deployment carries within its objectives, how many replicas that takes, and which is cheapest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.commands.options import Json, Limit, ScenarioArg, Seed, Set, Trace, Workers
from studies.reports import terminal

if TYPE_CHECKING:
    from scenarios.objectives import Objective
    from scenarios.schema import Scenario
    from studies.capacity.judging import BySimulation


def capacity(
    scenario: ScenarioArg,
    slo: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS", help="Objectives: 'ttft_p99<=500ms, tpot_p95<=50ms'. Default: those of the scenario."
        ),
    ] = None,
    over: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="The load: workload.rate, workload.concurrency, workload.speedup, or any number of the workload. Default: what the "
            "scenario has of these.",
        ),
    ] = None,
    confidence: Annotated[
        str, typer.Option(metavar="C", help="That objectives hold, or do not: 0.95 or 95%.")
    ] = "0.95",
    resolution: Annotated[
        str, typer.Option(metavar="PERCENT", help="How far apart the ends of the interval may be.")
    ] = "2%",
    requests: Annotated[
        int | None,
        typer.Option(metavar="N", min=50, help="Requests of a run at first; they become more where they must."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(metavar="N", min=5, help="Seeds at most; default 24.")] = None,
    workers: Workers = None,
    fewest: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Instead: the least of a whole number, such as replicas, at the scenario's load."
        ),
    ] = None,
    cheapest: Annotated[
        Path | None,
        typer.Option(metavar="SPACE.yaml", help="Instead: the cheapest configuration of a space (axes as in a study)."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --cheapest, what is least: usd_per_hour (default), or a figure of the bill such as usd_per_request.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="With --cheapest, let Optuna choose so many, instead of trying all."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With --cheapest, also run what is dearer than the best.")
    ] = False,
    set_: Set = None,
    trace: Trace = None,
    limit: Limit = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a page and JSON into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Find the highest load within objectives.

    Loads are tried by doubling and halving, each under as many seeds, in runs as long, as it takes to tell whether every objective
    holds and the backlog does not grow. With --fewest or --cheapest, which deployment carries the load that the scenario has."""
    import scenarios
    from scenarios.errors import InputError
    from studies.capacity import judging, objectives
    from studies.capacity.attain import MOST
    from studies.commands import bench_options
    from studies.reports import files

    _check_together(over, fewest, cheapest, by, trials, every)
    overrides = bench_options.joined(scenario, trace, set_, limit=limit)
    loaded = scenarios.load(scenario, overrides=overrides, trace=trace, seed=seed)
    asked = objectives.of_scenario(loaded) if slo is None else objectives.parse(slo)
    objectives.check_promises(asked, loaded)
    sure = _share(confidence, "--confidence")
    if not 0 < sure < 1:
        raise InputError(f"--confidence: found {confidence}, but it lies between 0 and 1, such as 0.95")
    if out is not None:
        files.check_folder(out)
    if fewest is not None or cheapest is not None:
        judge = judging.BySimulation(asked, sure, requests, workers, seeds)
        if fewest is not None:
            _fewest(loaded, fewest, judge, out, as_json)
        else:
            _cheapest(loaded, cheapest, judge, by, trials, every, out, as_json)
        return
    _highest(
        loaded, asked, over, sure, _share(resolution, "--resolution"), requests, seeds or MOST, workers, out, as_json
    )


def _highest(
    scenario: Scenario,
    asked: tuple[Objective, ...],
    over: str | None,
    confidence: float,
    resolution: float,
    requests: int | None,
    seeds: int,
    workers: int | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from studies.capacity import report, search

    with terminal.progress_bar() as tell:
        found = search.highest_load(
            scenario, asked, over, confidence=confidence, resolution=resolution, requests=requests, most=seeds, processes=workers,
            progress=tell,
        )  # fmt: skip
        if out is not None:
            search.look_around(found, requests=requests, processes=workers, progress=tell)
    if out is not None:
        terminal.say(f"wrote {report.write(found, out)}")
    if as_json:
        taken = sum(tried.cpu_seconds for tried in found.curve.values())
        terminal.print_json(report.to_dict(found) | {"cpu_seconds": round(taken, 3)})
    else:
        there = report.at_load(found)
        terminal.show_tables([report.table(found), *([] if there is None else [there])], report.sentences(found))
    if found.load is None:
        raise typer.Exit(1)


def _fewest(scenario: Scenario, path: str, judge: BySimulation, out: Path | None, as_json: bool) -> None:
    from studies.capacity import fewest_report, replicas

    with terminal.progress_bar() as tell:
        found = replicas.fewest(scenario, path, judge, progress=tell)
    if out is not None:
        terminal.say(f"wrote {fewest_report.write(found, out)}")
    if as_json:
        terminal.print_json(fewest_report.to_dict(found))
    else:
        terminal.show_tables([fewest_report.table(found)], fewest_report.sentences(found))
    if found.value is None:
        raise typer.Exit(1)


def _cheapest(
    scenario: Scenario,
    file: Path | None,
    judge: BySimulation,
    by: str | None,
    trials: int | None,
    every: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    from studies.capacity import cheapest, cheapest_report, space

    assert file is not None
    asked = space.read(file, scenario)
    with terminal.progress_bar() as tell:
        found = cheapest.cheapest(asked, judge, by=by or cheapest.PER_HOUR, every=every, trials=trials, progress=tell)
    if out is not None:
        terminal.say(f"wrote {cheapest_report.write(found, out)}")
    if as_json:
        terminal.print_json(cheapest_report.to_dict(found))
    else:
        terminal.show_tables(cheapest_report.found_tables(found), cheapest_report.sentences(found))
    if found.best is None:
        raise typer.Exit(1)


def _check_together(
    over: str | None, fewest: str | None, cheapest: Path | None, by: str | None, trials: int | None, every: bool
) -> None:
    """Raises InputError for options that do not go together."""
    from scenarios.errors import InputError

    asked = {"--over": over, "--fewest": fewest, "--cheapest": cheapest}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)}: each asks for something else; give one of them")
    if cheapest is None:
        for name, value in (("--by", by), ("--trials", trials), ("--all", every or None)):
            if value is not None:
                raise InputError(f"{name}: is about --cheapest SPACE.yaml; give it with that")


def _share(text: str, option: str) -> float:
    """Reads `2%` or `0.02`."""
    from scenarios.errors import InputError

    number, scale = (text.rstrip().removesuffix("%"), 0.01) if text.rstrip().endswith("%") else (text, 1.0)
    try:
        return float(number) * scale
    except ValueError:
        raise InputError(f"{option}: found {text!r}, but a number or a percentage is needed, such as 2%") from None
