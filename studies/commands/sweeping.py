"""`servetwin sweep`: every cell of a study, side by side, kept as it finishes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies import stopping
from studies.commands.options import Json, Set, Workers
from studies.reports import terminal

if TYPE_CHECKING:
    from studies.sweeps.results import Sweep
    from studies.sweeps.run import Plan, Progress

MOST_STARTING = 5
"""Cells before it is said how long the rest will take."""


def sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY.yaml", help="A study file, or the name of a shipped one.")],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the sweep; what it holds already is not run again. Default out/STUDY."
        ),
    ] = None,
    workers: Workers = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Workers of this dask.distributed scheduler, on many machines."),
    ] = None,
    set_: Set = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="KEY", help="Figure to show; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every cell, say how many there are, run none.")
    ] = False,
    detailed: Annotated[
        bool, typer.Option("--detailed", help="Keep a row of every request of every cell too.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed before.")] = False,
    allow_bad: Annotated[
        bool, typer.Option("--allow-bad", help="Cells whose scenario is wrong become failed rows; the others are run.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="The study may have changed: keep cells that are the same, run the others.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate every cell of a study.

    A cell is a point of its axes with a seed. Each is kept as it finishes; the same command goes on where it was stopped. Exit code 1
    if every cell failed, 130 after Ctrl-C."""
    from scenarios import InputError
    from studies.sweeps import run
    from studies.sweeps import study as studies_of

    if scheduler is not None and workers is not None:
        raise InputError("--workers: is about processes of this machine; a scheduler has its own workers, leave it out")
    folder = Path("out") / Path(study).stem if out is None else out
    try:
        asked = studies_of.read(study)
        if dry_run:
            _dry(run.plan(asked, set_ or ()), folder, allow_bad, as_json)
            return
        with _progress() as told:
            done = run.sweep(
                asked, out=folder, overrides=set_ or (), processes=workers, scheduler=scheduler, detailed=detailed,
                retry_failed=retry_failed, allow_bad=allow_bad, update=update, metrics=metric or (),
                progress=told, tell=terminal.say,
            )  # fmt: skip
    except (KeyboardInterrupt, SystemExit) as stop:
        terminal.say(
            f"servetwin: stopped. Cells that are finished are kept in {folder}; the same command goes on from there"
        )
        raise typer.Exit(stopping.TERMINATED if isinstance(stop, SystemExit) else stopping.INTERRUPTED) from None
    _show(done, metric, as_json)
    if done.rows and done.failed == len(done.rows):
        raise typer.Exit(1)


def _dry(planned: Plan, folder: Path, allow_bad: bool, as_json: bool) -> None:
    """What there would be to do."""
    from studies.reports.tables import Table
    from studies.sweeps import run
    from studies.sweeps.store import Folder

    run.check(planned, allow_bad)
    target = Folder(folder)
    target.check()
    changes = target.changes(planned.study)
    wanted = {key for key in planned.keys if key is not None}
    kept = {key for key in wanted if target.has(key)}
    points = len({cell.point.index for cell in planned.cells})
    total, refused = len(planned.cells), len(planned.refused)
    found: dict[str, Any] = {
        "study": planned.study.name,
        "folder": str(folder),
        "points": points,
        "seeds": total // points,
        "cells_total": total,
        "cells_run": 0,
        "cells_to_run": len(wanted) - len(kept),
        "cells_skipped": total - refused - (len(wanted) - len(kept)),
        "cells_refused": refused,
        "changes": changes,
    }
    if as_json:
        terminal.print_json(found)
        return
    told = {"points": points, "seeds of each": found["seeds"], "cells": total, "kept already": len(kept)}
    told |= {"wrong, will be failed rows": refused} if refused else {}
    rows = [(name, f"{count:,}") for name, count in {**told, "to run": found["cells_to_run"]}.items()]
    note = "" if not changes else "The study is another one than this folder's (--update): " + "; ".join(changes)
    terminal.show_tables([Table(f"{planned.study.name} into {folder}", ("", "count"), rows, note)])


def report(folder: Path, as_json: bool) -> None:
    """Shows a sweep of a folder, and writes its page again."""
    from studies.sweeps.results import load_sweep

    done = load_sweep(folder)
    if done.missing:
        terminal.say(f"{folder}: {done.missing:,} cells were not run; the sweep's command goes on with them")
    _show(done, None, as_json)


def _show(done: Sweep, metric: list[str] | None, as_json: bool) -> None:
    from studies.sweeps import page, tables

    terminal.say(f"wrote {page.write(done, metrics=metric)}")
    if done.failed:
        terminal.say(f"{done.failed:,} of {len(done.rows):,} cells failed; why stands in their rows, column error")
    if as_json:
        refused = len(done.rows) - done.run - done.skipped
        terminal.print_json(done.to_dict(metric) | {"cells_refused": refused})
        return
    console = terminal.stdout()
    terminal.show_tables(tables.every(done, metric, console.width), console=console)


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on stderr; where that is no terminal, a line at the first cell and after every tenth of them."""
    began = time.monotonic()
    if not sys.stderr.isatty():
        said = -1

        def tell(done: int, total: int, failed: int) -> None:
            nonlocal said, began
            if not done:
                began = time.monotonic()
                terminal.say(f"{total:,} cells to run")
                return
            part = 10 * done // total
            if part > said:
                said = part
                terminal.say(_count(done, total, failed) + _left(time.monotonic() - began, done, total))

        yield tell
        return
    with terminal.progress_bar() as bar:
        yield lambda done, total, failed: bar(_count(done, total, failed), done / total)


def _left(passed: float, done: int, total: int) -> str:
    """How long it will take yet, where enough cells are done to tell: the first ones wait for processes to start."""
    if done == total or done < MOST_STARTING:
        return ""
    return f", {_span(passed / done * (total - done))} left"


def _count(done: int, total: int, failed: int) -> str:
    return f"{done:,} of {total:,} cells" + (f", {failed:,} failed" if failed else "")


def _span(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )
