"""`servetwin ablation`: a policy switched, and whether the outcome moves as it should."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from studies.commands.options import Json
from studies.reports import terminal


def ablation(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A shipped ablation, or a file. Without it they are listed.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="cpu|cuda", help="Execute the variants, in small, instead of simulating them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every shipped one: some minutes.")] = False,
    validate: Annotated[
        bool,
        typer.Option(
            "--validate", help="Execute the variants, in small, replay them, and compare with the simulation."
        ),
    ] = False,
    repeats: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Executions of each variant with --validate; default 2.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Switch one policy in a ready scenario and see what it does.

    Exit code 1 if the outcome of the simulation does not move in the direction that is expected; with --validate, if replay decides
    otherwise than an execution did. The small form that --device runs is too small for some expectations."""
    from scenarios import InputError
    from studies import ablations

    if name is not None and every:
        raise InputError(f"--all: runs every shipped one, {name} too; give one of them")
    if repeats is not None and not validate:
        raise InputError("--repeats: is about --validate; give it with that")
    if name is None and not every:
        if validate or device is not None:
            raise InputError(f"--{'validate' if validate else 'device'}: needs the name of an ablation, or --all")
        found = {each: ablations.read(each).question for each in ablations.names()}
        if as_json:
            terminal.print_json(found)
        else:
            console = terminal.stdout()
            for each, asked in found.items():
                console.print(f"[bold]{each}[/]\n    {asked}", highlight=False)
        return
    chosen = ablations.names() if name is None else (name,)
    if every and (validate or device is not None):  # those that have a form for it
        chosen = tuple(each for each in chosen if ablations.read(each).execution)
    if validate:
        _validated(chosen, device or "cpu", repeats or 2, as_json)
        return
    with terminal.progress_bar() as tell:
        done = [ablations.run(each, device=device, progress=tell) for each in chosen]
    if as_json:
        terminal.print_json([each.to_dict() for each in done] if every else done[0].to_dict())
    else:
        terminal.show_tables([each.table() for each in done])
    if device is None and not all(each.holds for each in done):
        raise typer.Exit(1)


def _validated(chosen: Sequence[str], device: str, repeats: int, as_json: bool) -> None:
    """A line a variant."""
    from studies import validated_ablations

    asked = validated_ablations.variants(chosen)
    with terminal.progress_bar() as tell:
        rows = list(validated_ablations.validated(asked, device=device, repeats=repeats, progress=tell))
    if as_json:
        terminal.print_json(validated_ablations.to_dict(rows))
    else:
        terminal.show_tables([validated_ablations.table(rows, repeats)])
    if any(row.refused is None and not row.identical for row in rows):
        raise typer.Exit(1)
