"""`servetwin perfetto`: a run as a trace to look into."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.commands.options import Json, Set
from studies.commands.runs import RunArg, found
from studies.reports import terminal


def perfetto(
    run: RunArg,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the trace goes; packed if it ends in .gz.")] = Path(
        "trace.json.gz"
    ),
    start: Annotated[str, typer.Option(metavar="TIME", help="Only what happens from here on, such as 30s.")] = "0s",
    end: Annotated[str | None, typer.Option(metavar="TIME", help="And until here.")] = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Write a run as a trace for ui.perfetto.dev.

    chrome://tracing opens it too. Steps, batches and KV memory of every replica, and of every request when it waited, which chunks of its prompt were computed when,
    and when it decoded."""
    from scenarios.errors import InputError
    from scenarios.fields import parse_duration
    from studies import perfetto as traces
    from studies.reports.files import check_file

    try:
        first, last = parse_duration(start), None if end is None else parse_duration(end)
    except ValueError as error:
        raise InputError(f"--start, --end: {error}") from None
    check_file(out, "a trace is a file")
    done = found(run, set_ or [])
    count = traces.write(done, out, first, last)
    if as_json:
        terminal.print_json({"name": done.name, "trace": str(out), "events": count, "bytes": out.stat().st_size})
        return
    terminal.say(f"wrote {out} ({count:,} events): open it at ui.perfetto.dev")
