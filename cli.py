"""The `servetwin` command. Results go to stdout, progress and messages to stderr; bad input ends with exit code 2.

Everything heavy is imported inside the command that needs it: a simulation of a whole trace takes seconds, not imports.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from studies import stopping

with stopping.quietly():
    import typer

    from studies.commands import (
        ablation,
        capacity,
        comparing,
        deciding,
        explaining,
        fidelity,
        glossary,
        launches,
        measuring,
        profiles,
        question,
        sweeping,
        tracing,
        validation,
    )
    from studies.commands.options import (
        Burstiness,
        Clock,
        Concurrency,
        Device,
        Goodput,
        InputLen,
        Json,
        Limit,
        Out,
        OutputLen,
        Percentiles,
        Prompts,
        Rate,
        SaveDetailed,
        SaveResult,
        ScenarioArg,
        Seed,
        Set,
        Speedup,
        Trace,
        spread,
    )
    from studies.reports import terminal

if TYPE_CHECKING:
    from scenarios.schema import Scenario
    from studies.results import Run

app = typer.Typer(
    name="servetwin",
    help="A digital twin of an LLM serving engine: one scheduler, two clocks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def servetwin(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"servetwin {installed('servetwin')}")
        raise typer.Exit


@app.command()
def run(
    scenario: ScenarioArg,
    trace: Trace = None,
    limit: Limit = None,
    speedup: Speedup = None,
    set_: Set = None,
    seed: Seed = None,
    out: Out = None,
    as_json: Json = False,
    request_rate: Rate = None,
    burstiness: Burstiness = None,
    max_concurrency: Concurrency = None,
    num_prompts: Prompts = None,
    input_len: InputLen = None,
    output_len: OutputLen = None,
    goodput: Goodput = None,
    metric_percentiles: Percentiles = None,
    save_result: SaveResult = False,
    save_detailed: SaveDetailed = False,
) -> None:
    """Simulate a scenario."""
    from studies import results
    from studies.commands import bench_options
    from studies.run import simulate

    wanted = bench_options.percentiles(metric_percentiles)
    overrides = bench_options.joined(
        scenario, trace, set_, request_rate=request_rate, burstiness=burstiness, max_concurrency=max_concurrency,
        num_prompts=num_prompts, random_input_len=input_len, random_output_len=output_len, goodput=goodput or (),
        limit=limit, speedup=speedup,
    )  # fmt: skip
    loaded = _load(scenario, trace, overrides, seed)
    folder = results.folder_for(loaded.name, out, save_result or save_detailed)
    with terminal.spinner("simulating"):
        done = simulate(loaded, percentiles=wanted)
    done.info["set"] = overrides
    _finish(done, folder, as_json, save_detailed)


@app.command()
def execute(
    scenario: ScenarioArg,
    trace: Trace = None,
    limit: Limit = None,
    speedup: Speedup = None,
    set_: Set = None,
    seed: Seed = None,
    out: Out = None,
    as_json: Json = False,
    device: Device = "cpu",
    clock: Clock = "device",
    num_prompts: Prompts = None,
    metric_percentiles: Percentiles = None,
    save_detailed: SaveDetailed = False,
) -> None:
    """Execute a scenario on a real engine."""
    from studies import results
    from studies.commands import bench_options
    from studies.run import execute as run_on

    wanted = bench_options.percentiles(metric_percentiles)
    overrides = bench_options.joined(scenario, trace, set_, num_prompts=num_prompts, limit=limit, speedup=speedup)
    loaded = _load(scenario, trace, overrides, seed)
    folder = results.folder_for(loaded.name, out, save_detailed)
    with terminal.progress_bar() as tell:
        done = run_on(loaded, device=device, clock=clock, percentiles=wanted, progress=tell)  # type: ignore[arg-type]
    done.info["set"] = overrides
    _finish(done, folder, as_json, save_detailed)


app.command()(measuring.calibrate)


app.command()(validation.validate)


app.command()(fidelity.fidelity)


app.command()(explaining.explain)


app.command()(tracing.perfetto)


app.command()(ablation.ablation)


app.command()(sweeping.sweep)


app.command()(question.question)


app.command()(glossary.glossary)


app.command()(capacity.capacity)


app.command()(measuring.quality)


app.command()(measuring.acceptance)


app.add_typer(profiles.import_app, name="import")


app.command()(profiles.profiles)


app.command()(launches.from_vllm)


app.command()(launches.from_sglang)


app.command()(comparing.compare)


app.command()(deciding.decide)


@app.command()
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the scenario; NAME.yaml is written here.")],
) -> None:
    """Write a commented scenario to start from."""
    from scenarios import InputError, template

    path = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template("demo", path))
    except FileExistsError:
        raise InputError(f"{path}: exists already; choose another name") from None
    except FileNotFoundError:
        raise InputError(f"{path}: there is no folder {path.parent}; make it first, or choose another name") from None
    typer.echo(str(path))


@app.command()
def replay(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The result folder of a run.")], as_json: Json = False
) -> None:
    """Decide a recorded run again.

    With its own step durations it must come out identical; exit code 1 if not."""
    from studies import results
    from studies.run import replayed
    from studies.workload_files import load_workload

    recorded = results.load(log)
    found = replayed(recorded, load_workload(log))
    if as_json:
        terminal.print_json(
            {"identical": found.identical, "steps": found.steps, "first_difference": found.first_difference}
        )
    else:
        typer.echo(f"{'identical' if found.identical else 'different'}: {found.steps:,} steps of {recorded.name}")
        if found.first_difference:
            typer.echo(found.first_difference)
    if not found.identical:
        raise typer.Exit(1)


@app.command()
def conformance(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Recorded scheduler traces.")], as_json: Json = False
) -> None:
    """Compare our decisions with recorded ones.

    Step by step, by group; exit code 1 if one differs."""
    from studies.conformance import conformance_table
    from studies.conformance import run as drive

    with terminal.spinner("driving recorded traces"):
        found = drive(directory)
    if as_json:
        terminal.print_json(found.to_dict())
    else:
        terminal.show_tables([conformance_table(found.to_dict())])
    if found.failed:
        raise typer.Exit(1)


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The result folder of a run, or the folder of a sweep.")
    ],
    as_json: Json = False,
) -> None:
    """Render a finished run again, here and as HTML.

    Or a sweep: of one that was stopped, the cells that are finished."""
    from studies import results
    from studies.reports import report as reports
    from studies.sweeps.results import is_sweep

    if is_sweep(directory):
        sweeping.report(directory, as_json)
        return
    loaded = results.load(directory)
    path = reports.write(loaded, directory)
    if as_json:
        terminal.print_json(results.document(loaded))
        return
    reports.show(loaded, terminal.stdout())
    terminal.say(f"wrote {path}")


@app.command()
def schema() -> None:
    """Print the JSON schema of a scenario, for editors."""
    from scenarios import json_schema

    terminal.print_json(json_schema())


@app.command(name="app")
def dashboard(
    port: Annotated[int, typer.Option(metavar="N", help="Port on localhost.")] = 8501,
    workspace: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder in which it keeps uploads and opens sweeps and profiles.")
    ] = Path("."),
    browser: Annotated[bool, typer.Option(help="Open a browser on it.")] = True,
) -> None:
    """Open the dashboard on this machine."""
    import importlib.util
    import os
    import socket

    from scenarios import InputError

    if importlib.util.find_spec("streamlit") is None or importlib.util.find_spec("app") is None:
        raise InputError("the dashboard needs streamlit, which is not installed: pip install 'servetwin[app]'")
    if not workspace.is_dir():
        raise InputError(f"--workspace {workspace}: there is no such folder")
    if not 0 < port < 65536:
        raise InputError(f"--port {port}: a port is a number from 1 to 65535")
    try:
        for family, *_, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM):
            socket.create_server(address, family=family).close()
    except OSError as error:
        raise InputError(f"--port {port}: {os.strerror(error.errno or 0).lower()}; another one may be free") from None
    os.environ["SERVETWIN_WORKSPACE"] = str(workspace.absolute())
    # In the place of this process, so that whoever ends it ends the server.
    command = [sys.executable, "-m", "dashboard.server", str(port), *(["--open"] if browser else [])]
    os.execv(sys.executable, command)


@app.command()
def demo(
    trace: Trace = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Result folder.")] = Path("out/demo"),
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Calibrate, simulate and execute, side by side.

    The demo scenario, on this machine; writes report.html."""
    from studies import results
    from studies.demo import demo as play

    loaded = _load("demo", trace, [], seed)
    results.check_target(out)
    with terminal.progress_bar() as tell:
        found = play(loaded, out, progress=tell)
    if as_json:
        terminal.print_json(found.to_dict())
        return
    terminal.show_tables(found.tables(), [found.sentence])
    terminal.say(f"wrote {out / 'report.html'}")


def _load(scenario: str, trace: Path | None, overrides: list[str], seed: int | None) -> Scenario:
    import scenarios

    return scenarios.load(scenario, overrides=overrides, trace=trace, seed=seed)


def _finish(done: Run, folder: Path | None, as_json: bool, detailed: bool) -> None:
    from studies import results

    if folder is not None:
        from studies.reports import report

        report.save(done, folder, detailed=detailed)
        terminal.say(f"wrote {folder}")
    if as_json:
        terminal.print_json(results.document(done))
        return
    from studies.reports.report import show

    show(done, terminal.stdout())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point: the exit code is 0, 1 (something compared is different), 2 (bad input), 130 (interrupted) or 143
    (told to end)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # names may hold what no terminal can show
    if arguments is None and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough ends this, quietly
    if arguments is None:
        stopping.clean_on_termination()
    given = spread(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, prog_name="servetwin")
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(stopping.INTERRUPTED)
    except (ValueError, OSError) as error:
        from scenarios.errors import InputError

        if not isinstance(error, InputError | OSError):
            raise
        terminal.say(f"servetwin: {error}")
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
