"""`servetwin question`: a question that people ask about serving, the answer, and whether it still is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from studies.commands.options import Json, Set, Workers
from studies.reports import terminal

if TYPE_CHECKING:
    from studies.questions import Answered


def question(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A shipped study, or a file. Without it they are listed.")
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Fewer and shorter runs, seconds in all: directions only, not the figures.")
    ] = False,
    set_: Set = None,
    every: Annotated[bool, typer.Option("--all", help="Run every shipped one: several minutes.")] = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Ask a question about serving: the answer with its figures, what it takes for granted, and the runs behind it.

    They are simulated anew. Exit code 1 if the outcome does not move in the direction that is expected. With --set the same question is
    asked of your model, hardware or load; `servetwin sweep NAME --out DIR` keeps every run."""
    from scenarios import InputError
    from studies import questions

    if name is not None and every:
        raise InputError(f"--all: runs every shipped one, {name} too; give one of them")
    if name is None and not every:
        if small or set_:
            raise InputError(f"--{'small' if small else 'set'}: needs the name of a question, or --all")
        _list(as_json)
        return
    chosen = [each for topic in questions.TOPICS.values() for each in topic] if name is None else [name]
    done = []
    with terminal.progress_bar() as tell:
        for each in chosen:
            done.append(
                questions.ask(each, small=small, overrides=set_ or (), processes=1 if small else workers, progress=tell)
            )
    if as_json:
        terminal.print_json([each.to_dict() for each in done] if every else done[0].to_dict())
    else:
        for found in done:
            _print(found, set_ or ())
    if not all(each.holds for each in done):
        raise typer.Exit(1)


def _list(as_json: bool) -> None:
    from studies import questions

    found = {topic: {name: questions.read(name) for name in names} for topic, names in questions.TOPICS.items()}
    if as_json:
        asked = [(topic, name, study) for topic, studies in found.items() for name, study in studies.items()]
        terminal.print_json(
            {
                name: {"topic": topic, "question": study.question, "answer": questions.first_sentence(study)}
                for topic, name, study in asked
            }
        )
        return
    console = terminal.stdout()
    for topic, studies in found.items():
        console.print(f"\n{topic}", style="bold", markup=False)
        for name, study in studies.items():
            console.print(f"  {name}", style="cyan", highlight=False, markup=False)
            console.print(f"    {study.question}", highlight=False, markup=False)


def _print(found: Answered, changed: Sequence[str]) -> None:
    study, console = found.study, terminal.stdout()
    console.print()
    console.print(study.question, style="bold", highlight=False, markup=False)
    console.print(f"\n{study.answer}", highlight=False, markup=False)
    if changed:
        told = f"\nThat is of the study as it is shipped. The runs below are with {', '.join(changed)}."
        console.print(told, highlight=False, markup=False)
    for head, text in (("Assumes", study.assumes), ("On hardware", study.on_hardware)):
        if text:
            console.print(f"\n{head}", style="bold", markup=False)
            console.print(text.strip("\n"), highlight=False, markup=False, soft_wrap=head == "On hardware")
    terminal.show_tables(found.tables(), console=console)
