"""`servetwin ablation`: a policy switched, and whether the outcome moves as it should."""

from __future__ import annotations

from typing import Annotated

import typer

from studies import terminal
from studies.commands.options import Json


def ablation(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A shipped ablation, or a file. Without it they are listed.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda", help="Execute the variants, in small, instead of simulating them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every shipped one.")] = False,
    as_json: Json = False,
) -> None:
    """Switch one policy in a ready scenario and see what it does.

    Exit code 1 if the outcome does not move in the direction that is expected."""
    from studies import ablations

    if name is None and not every:
        found = {each: ablations.read(each).question for each in ablations.names()}
        if as_json:
            terminal.print_json(found)
        else:
            from studies.tables import Table

            terminal.show_tables(
                [Table("Ablations", ("question", "name"), [(asked, each) for each, asked in found.items()])]
            )
        return
    with terminal.progress_bar() as tell:
        chosen = ablations.names() if name is None else (name,)
        done = [ablations.run(each, device=device, progress=tell) for each in chosen]
    if as_json:
        terminal.print_json([each.to_dict() for each in done] if every else done[0].to_dict())
    else:
        terminal.show_tables([each.table() for each in done])
    if not all(each.holds for each in done):
        raise typer.Exit(1)
