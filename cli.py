"""The `servetwin` command. Results go to stdout, progress and messages to stderr; bad input ends with exit code 2.

Everything heavy is imported inside the command that needs it: a simulation of a whole trace takes seconds, not imports.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from studies import terminal

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

ScenarioArg = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Replay this trace instead of generated requests.")]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the trace's first so many requests.")]
Speedup = Annotated[float | None, typer.Option(metavar="X", help="Replay the trace so many times faster.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override a field; may be repeated.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Instead of the scenario's seed.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write a result folder with Parquet, JSON and an HTML report.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="Device that computes: cpu.")]
Clock = Annotated[
    str, typer.Option(metavar="NAME", help="device: measured step times advance a simulated clock; wall: real time.")
]
Profile = Annotated[
    str | None, typer.Option(metavar="FILE", help="A measured cost profile, instead of measuring this machine first.")
]
# From here on named as in `vllm bench serve`.
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="Requests per second; inf: all at once.")]
Burstiness = Annotated[float | None, typer.Option(metavar="X", help="1 is Poisson, below it bursts.")]
Concurrency = Annotated[int | None, typer.Option(metavar="N", help="Closed loop of so many clients.")]
Prompts = Annotated[int | None, typer.Option(metavar="N", help="Number of requests.")]
InputLen = Annotated[int | None, typer.Option("--random-input-len", metavar="N", help="Prompt tokens.")]
OutputLen = Annotated[int | None, typer.Option("--random-output-len", metavar="N", help="Answer tokens.")]
Goodput = Annotated[
    list[str] | None,
    typer.Option(metavar="LIMITS", help="What requests are promised, in ms: ttft:200 tpot:30 e2el:5000."),
]
Percentiles = Annotated[
    str | None, typer.Option("--metric-percentiles", metavar="P,P", help="Percentiles to report; default 50,90,95,99.")
]
SaveResult = Annotated[bool, typer.Option("--save-result", help="Write a result folder out/NAME, as --out does.")]
SaveDetailed = Annotated[bool, typer.Option("--save-detailed", help="The same, with raw values of each request.")]

APP_OPTIONS = ("--browser.gatherUsageStats=false", "--server.fileWatcherType=none", "--client.toolbarMode=minimal")
"""Nothing leaves this machine, nothing of the server's own development is on offer."""


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
    from studies import bench_options
    from studies.run import simulate

    wanted = bench_options.percentiles(metric_percentiles)
    overrides = _bench(
        scenario, trace, set_, request_rate=request_rate, burstiness=burstiness, max_concurrency=max_concurrency,
        num_prompts=num_prompts, random_input_len=input_len, random_output_len=output_len, goodput=goodput or (),
        limit=limit, speedup=speedup,
    )  # fmt: skip
    loaded = _load(scenario, trace, overrides, seed)
    folder = _folder(out, save_result or save_detailed, loaded.name)
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
    from studies import bench_options
    from studies.run import execute as run_on

    wanted = bench_options.percentiles(metric_percentiles)
    overrides = _bench(scenario, trace, set_, num_prompts=num_prompts, limit=limit, speedup=speedup)
    loaded = _load(scenario, trace, overrides, seed)
    folder = _folder(out, save_detailed, loaded.name)
    with terminal.progress_bar() as tell:
        done = run_on(loaded, device=device, clock=clock, percentiles=wanted, progress=tell)  # type: ignore[arg-type]
    done.info["set"] = overrides
    _finish(done, folder, as_json, save_detailed)


@app.command()
def calibrate(
    model: Annotated[str, typer.Option(metavar="NAME", help="A model of the catalog, or a Hugging Face config.json.")],
    device: Device = "cpu",
    clock: Clock = "device",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The profile's file; default out/profiles/NAME.json.")
    ] = None,
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="A coarse grid: about a third of the time.")] = False,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Measurements of each step shape.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure step costs here: a cost profile."""
    from scenarios import InputError
    from studies import profiles
    from studies.results import check_parent
    from studies.run import backend

    # The engine's settings bound what is measured: --set engine.max_num_seqs=8 and the like.
    scenario = profiles.scenario_of(model, set_ or [])
    target = out or profiles.FOLDER / f"{scenario.model.name}-{device}.json"
    if target.is_dir():
        raise InputError(f"--out {target}: a folder, but a profile is a file")
    check_parent(target)
    with terminal.progress_bar() as tell:
        engine = backend(scenario, device, clock)  # type: ignore[arg-type]
        profile = profiles.measured(
            scenario, engine, grid="quick" if quick else "standard", repeats=repeats, name=target.stem, progress=tell
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    profile.save(target)
    if as_json:
        terminal.print_json(json.loads(profile.model_dump_json(exclude={"measurements"})) | {"file": str(target)})
        return
    from studies.tables import profile_table

    terminal.show_tables([profile_table(profile)])
    terminal.say(f"wrote {target}")


@app.command()
def validate(
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
    repeats: Annotated[
        int, typer.Option(metavar="N", min=1, help="Executions of the scenario and of each variant.")
    ] = 3,
    num_prompts: Prompts = None,
    profile: Profile = None,
    ranking: Annotated[bool, typer.Option(help="Also rank six policies (executes each of them).")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Calibrate on a coarse grid.")] = False,
) -> None:
    """Compare executions with the simulation.

    Schedule, step costs, outcome and ranking of policies, each apart."""
    from sim.profile import load_profile
    from studies.validation import validate as check

    if quick and profile:
        from scenarios import InputError

        raise InputError("--quick is about calibrating, which --profile replaces; give one of them")
    overrides = _bench(scenario, trace, set_, num_prompts=num_prompts, limit=limit, speedup=speedup)
    loaded = _load(scenario, trace, overrides, seed)
    folder = _folder(out, False, loaded.name)
    given = load_profile(profile) if profile else None
    with terminal.progress_bar() as tell:
        found = check(
            loaded, device=device, clock=clock, repeats=repeats, profile=given,  # type: ignore[arg-type]
            grid="quick" if quick else "standard", ranking=ranking, progress=tell,
        )  # fmt: skip
    for done in found.executed:
        done.info["set"] = overrides
    if folder is not None:
        from studies.validation import write

        write(found, folder)
        terminal.say(f"wrote {folder}")
    if as_json:
        terminal.print_json(found.to_dict())
        return
    terminal.show_tables(found.tables(), [found.sentence])


@app.command()
def quality(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="smollm2, a .gguf file, or a Hugging Face folder with safetensors.")
    ],
    weights: Annotated[
        str, typer.Option(metavar="P,P", help="Precisions of the weights: int8, int4, fp8.")
    ] = "int8,int4",
    kv: Annotated[str, typer.Option(metavar="P,P", help="Precisions of the KV cache: int8, fp8.")] = "int8",
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Held-out text; default: a shipped one of 1,275 words.")
    ] = None,
    window: Annotated[int, typer.Option(metavar="N", min=2, help="Most tokens before one that is predicted.")] = 2048,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Store the figures in this cost profile too.")
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure what quantisation costs in quality.

    Perplexity, KL divergence and top-1 agreement, against the unquantised model."""
    from scenarios import InputError
    from sim.profile import load_profile
    from studies import quality as qualities
    from studies.results import check_parent

    if out is not None:
        if out.is_dir():
            raise InputError(f"--out {out}: a folder, but the figures are a file")
        check_parent(out)
    if profile is not None and not profile.is_file():
        raise InputError(f"--profile {profile}: there is no such file; servetwin calibrate writes one")
    given = load_profile(profile) if profile is not None else None
    with terminal.progress_bar() as tell:
        found = qualities.measured(
            model, weights=_names(weights), kv=_names(kv), text=text, window=window, device=device, profile=given,
            progress=tell,
        )  # fmt: skip
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        found.save(out)
        terminal.say(f"wrote {out}")
    if profile is not None and given is not None:
        qualities.store(found, given).save(profile)
        terminal.say(f"wrote {profile}")
    if as_json:
        terminal.print_json(found.model_dump())
        return
    from studies.tables import quality_table

    terminal.show_tables([quality_table(found)])


@app.command()
def acceptance(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="smollm2, a .gguf file, or a Hugging Face folder with safetensors.")
    ],
    method: Annotated[str, typer.Option(metavar="NAME", help="Who proposes drafts: ngram or draft.")] = "ngram",
    k: Annotated[int, typer.Option("--k", metavar="N", help="Drafts at a time.")] = 4,
    draft: Annotated[str | None, typer.Option(metavar="MODEL", help="The draft model, for --method draft.")] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text to continue; default: a shipped one of 1,275 words.")
    ] = None,
    prompts: Annotated[int, typer.Option(metavar="N", min=2, max=256, help="Pieces of it that are continued.")] = 16,
    answer: Annotated[int, typer.Option(metavar="N", min=2, help="Tokens of each answer.")] = 96,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Store the figures in this cost profile.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how many drafts of speculative decoding stand.

    A real model continues a text; what stands, by position and by request, is what a simulation draws from."""
    from scenarios import InputError
    from scenarios.documents import read_text
    from sim.profile import load_profile
    from studies import acceptance as acceptances
    from studies.quality import TEXT, shipped_text

    if profile is not None and not profile.is_file():
        raise InputError(f"--profile {profile}: there is no such file; servetwin calibrate writes one")
    given = load_profile(profile) if profile is not None else None
    with terminal.progress_bar() as tell:
        found = acceptances.measured(
            model, shipped_text() if text is None else read_text(text), name=TEXT if text is None else text.name, method=method, k=k, draft=draft, requests=prompts, answer_tokens=answer,
            progress=tell,
        )  # fmt: skip
    if profile is not None and given is not None:
        acceptances.store(found, given).save(profile)
        terminal.say(f"wrote {profile}")
    if as_json:
        terminal.print_json(found.model_dump())
        return
    from studies.tables import acceptance_table

    terminal.show_tables([acceptance_table(found)])


@app.command()
def compare(
    scenario: Annotated[list[str], typer.Argument(metavar="A.yaml B.yaml ...", help="Scenarios, by file or name.")],
    trace: Trace = None,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write compare.html and compare.json into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate several scenarios side by side."""
    from studies import comparison

    loaded = [_load(path, trace, set_ or [], None) for path in scenario]
    if out is not None:
        comparison.check_target(out)
    with terminal.spinner("simulating"):
        found = comparison.compare(loaded, files=scenario)
    if out is not None:
        comparison.write(found, out)
        terminal.say(f"wrote {out / 'compare.html'}")
    if as_json:
        terminal.print_json(found.to_dict())
        return
    console = terminal.stdout()
    terminal.show_tables(found.tables(console.width), found.sentences(), console)


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

    recorded = results.load(log)
    found = replayed(recorded, results.load_workload(log))
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
    from studies.conformance import run as drive
    from studies.tables import conformance_table

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
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The result folder of a run.")], as_json: Json = False
) -> None:
    """Render a finished run again, here and as HTML."""
    from studies import report as reports
    from studies import results

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
def dashboard(port: Annotated[int, typer.Option(metavar="N", help="Port on localhost.")] = 8501) -> None:
    """Open the dashboard on this machine."""
    import importlib.util
    import os

    from scenarios import InputError

    found = importlib.util.find_spec("app")
    if importlib.util.find_spec("streamlit") is None or found is None or found.origin is None:
        raise InputError("the dashboard needs streamlit, which is not installed: pip install 'servetwin[app]'")
    options = ("--server.address=localhost", f"--server.port={port}", *APP_OPTIONS)
    # In the place of this process, so that whoever ends it ends the server.
    os.execv(sys.executable, [sys.executable, "-m", "streamlit", "run", found.origin, *options])


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


def _names(listed: str) -> list[str]:
    """Names of a comma-separated option, each once; none for an empty text or `none`."""
    names = [name.strip() for name in listed.split(",")]
    return [] if listed.strip() in ("", "none") else list(dict.fromkeys(names))


def _bench(scenario: str, trace: Path | None, given: list[str] | None, **options: Any) -> list[str]:
    """Overrides of options in vLLM's names; what was given with --set comes last and wins."""
    if not any(value not in (None, ()) for value in options.values()):
        return list(given or [])
    from scenarios import documents
    from studies import bench_options

    path = Path(scenario)
    replays = trace is not None or (path.is_file() and bench_options.replays(documents.read_mapping(path)))
    return [*bench_options.overrides(**options, replays=replays), *(given or [])]


def _folder(out: Path | None, save: bool, name: str) -> Path | None:
    """Where to write results, checked before any work."""
    if out is None and not save:
        return None
    from studies.results import check_target, file_name

    folder = out if out is not None else Path("out") / file_name(name)
    check_target(folder)
    return folder


def _finish(done: Run, folder: Path | None, as_json: bool, detailed: bool) -> None:
    from studies import results

    if folder is not None:
        from studies import report

        report.save(done, folder, detailed=detailed)
        terminal.say(f"wrote {folder}")
    if as_json:
        terminal.print_json(results.document(done))
        return
    from studies.report import show

    show(done, terminal.stdout())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point: the exit code is 0, 1 (something compared is different), 2 (bad input), or 130 (interrupted)."""
    from studies.bench_options import spread

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # names may hold what no terminal can show
    if arguments is None and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that has seen enough ends this, quietly
    given = spread(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, prog_name="servetwin")
    except (ValueError, OSError) as error:
        from scenarios.errors import InputError

        if not isinstance(error, InputError | OSError):
            raise
        terminal.say(f"servetwin: {error}")
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
