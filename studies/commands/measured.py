"""`servetwin validate --measured DIR`: its options, and what it does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from studies.commands.options import names_of
from studies.reports import terminal

Measured = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Compare runs that a real engine served: LLMServingSim's layout, vllm bench serve JSON, or CSV.",
    ),
]
Model = Annotated[str | None, typer.Option(metavar="NAME", help="With --measured: which model ran.")]
Hardware = Annotated[str | None, typer.Option(metavar="NAME", help="With --measured: on what it ran.")]
Serving = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="With --measured: what the files do not say: model, hardware, engine (fields as in a scenario), overhead_from; "
        "default: measured.yaml beside them.",
    ),
]
FitRows = Annotated[
    str | None,
    typer.Option(metavar="A:B", help="With --measured: fit step costs on these iterations of its step log (6219:)."),
]
OverheadFrom = Annotated[
    str | None,
    typer.Option(metavar="RUN,RUN", help="With --measured: set client and host overhead on these runs; none: no such."),
]
Only = Annotated[
    str | None,
    typer.Option(metavar="RUN,RUN", help="With --measured: read these runs only; with --silicon: NAME=VALUE,..."),
]
Unit = Annotated[
    str | None,
    typer.Option(metavar="UNIT", help="With --measured: ns, us, ms or s, of CSV columns that do not say it."),
]
Noise = Annotated[
    bool | None,
    typer.Option("--noise/--no-noise", help="With --measured: draw noise of step times where the profile holds it."),
]


def validate(
    folder: Path,
    scenario: str | None,
    *,
    overrides: list[str],
    seed: int | None,
    profile: str | None,
    model: str | None,
    hardware: str | None,
    serving: str | None,
    fit_rows: str | None,
    overhead_from: str | None,
    only: str | None,
    time_unit: str | None,
    noise: bool | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Simulates the runs of a folder and says how far off that is."""
    import scenarios
    from scenarios import InputError
    from scenarios.trace_options import TimeUnit
    from studies.measured import report as measured_report
    from studies.measured.validation import validate_measured

    if time_unit is not None and time_unit not in get_args(TimeUnit):
        raise InputError(f"--time-unit: found {time_unit}, allowed: {', '.join(get_args(TimeUnit))}")
    if scenario is None and overrides:
        raise InputError(
            "--set: overrides a scenario's fields; give the scenario, or a --serving file with engine fields"
        )
    loaded = None if scenario is None else scenarios.load(scenario, overrides=overrides, seed=seed)
    if out is not None:
        measured_report.check_target(out)
    with terminal.progress_bar() as tell:
        found = validate_measured(
            folder, loaded, model=model, hardware=hardware, profile=profile, serving=serving, fit_rows=fit_rows,
            overhead_from=None if overhead_from is None else names_of(overhead_from), only=names_of(only or ""),
            unit=time_unit, noise=noise is not False, progress=tell,  # type: ignore[arg-type]
        )  # fmt: skip
    if out is not None:
        measured_report.write(found, out)
        terminal.say(f"wrote {out}")
    if as_json:
        terminal.print_json(measured_report.to_dict(found))
        return
    terminal.show_tables(measured_report.report_tables(found), [measured_report.sentence(found)])
