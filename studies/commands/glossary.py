"""`servetwin glossary`: what a word means here, and what other tools call it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from studies.commands.options import Json
from studies.reports import terminal

if TYPE_CHECKING:
    from studies.glossary import Entry


def glossary(
    term: Annotated[
        str | None,
        typer.Argument(
            metavar="[TERM]", help="A term, an export key, or another tool's word. Without it all are listed."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Tell what a word or a figure means.

    Definition, formula, unit, export keys, when it is withheld, and what other tools mean by the same word or by another."""
    from scenarios.errors import InputError, unknown
    from studies import glossary as words

    found = words.search(term) if term is not None else list(words.entries())
    if not found:
        raise InputError(f"glossary: {unknown('term', term, [each.term for each in words.entries()])}")
    if as_json:
        terminal.print_json([_as_dict(each) for each in found])
        return
    if term is None:
        for group, members in words.groups().items():
            _lines(group, [(each.term, each.name) for each in members])
        return
    best, *more = found
    _tell(best)
    if more:
        _lines("It may also mean", [(each.term, each.name) for each in more[:6]])


def _tell(found: Entry) -> None:
    """One entry."""
    console = terminal.stdout()
    console.print(f"\n{found.term}: {found.name}", style="bold", highlight=False, markup=False)
    console.print(found.meaning, highlight=False, markup=False)
    console.print()
    for name, value in found.facts():
        console.print(f"  {name}: {value}", highlight=False, markup=False)
    if found.others:
        console.print("\nElsewhere", style="bold", markup=False)
    for other in found.others:
        same = "the same" if other.same else "not the same"
        note = f": {other.note}" if other.note else ""
        console.print(f"  {other.tool}, {other.word}: {same}{note}", highlight=False, markup=False)


def _lines(title: str, rows: list[tuple[str, str]]) -> None:
    console = terminal.stdout()
    console.print(f"\n{title}", style="bold", markup=False)
    for term, name in rows:
        console.print(f"  {term:<22}{name}", highlight=False, markup=False)


def _as_dict(found: Entry) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(found)
