"""The terminal of a command: results on stdout, messages and signs of life on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from studies.progress import Progress
    from studies.reports.tables import Table


def stdout() -> Console:
    from rich.console import Console

    return Console()


def show_tables(tables: Sequence[Table], sentences: Sequence[str] = (), console: Console | None = None) -> None:
    """Prints tables, and below them what they come to."""
    from studies.reports.report import show_table

    console = console or stdout()
    for table in tables:
        show_table(table, console)
    console.print()
    for sentence in sentences:
        console.print(sentence, highlight=False, markup=False)


def print_json(value: Any) -> None:
    from studies.reports.strict_json import dumps

    # In one write: a reader that has seen enough may be gone before a second one.
    sys.stdout.write(dumps(value) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """A message for people, beside the results."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def spinner(text: str) -> Iterator[None]:
    """A sign of life on stderr, where somebody looks."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on stderr; where that is no terminal, a line when something begins."""
    if not sys.stderr.isatty():
        seen: set[str] = set()

        def tell(what: str, part: float) -> None:
            if what not in seen:
                seen.add(what)
                say(f"{what} ...")

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, part: bar.update(task, description=what, completed=part)
