"""`servetwin validate --silicon`: measured points of data-centre GPUs against their simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.reports import terminal

Silicon = Annotated[
    bool,
    typer.Option(
        "--silicon",
        help="Simulate the measured points of data-centre GPUs that aiconfigurator-core carries (extra: profiles). With --only "
        "NAME=VALUE (system, engine, model, precision, half, population, tp, concurrency) and --limit; --out keeps what was simulated.",
    ),
]
Processes = Annotated[int | None, typer.Option("--processes", metavar="N", min=1, help="With --silicon: processes; 2.")]


def validate(*, only: str | None, limit: int | None, out: Path | None, processes: int | None, as_json: bool) -> None:
    """Simulates the points and prints what came of it; an interrupted call goes on where it stopped."""
    from scenarios import InputError
    from studies.reports import files
    from studies.reports.strict_json import dumps
    from studies.silicon.validation import FOLDER
    from studies.silicon.validation import validate as check

    folder = out or FOLDER
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out: {folder} is a file, but a folder is needed")
    with terminal.progress_bar() as tell:
        found = check(only=only, limit=limit, folder=folder, processes=processes or 2, tell=tell)
    if out is not None:
        files.write(folder, {"silicon.json": dumps(found.to_dict()) + "\n"})
        terminal.say(f"wrote {folder}")
    if as_json:
        terminal.print_json(found.to_dict())
        return
    terminal.show_tables(found.tables(), [found.sentence])
