"""Tables that are wider than what they are shown on."""

from __future__ import annotations

from collections.abc import Iterable

from studies.reports.tables import Table

GAP = 3
"""Characters between two columns on the terminal."""


def width(table: Table, columns: Iterable[int] | None = None) -> int:
    """Characters that a table, or some columns of it, take on the terminal."""
    chosen = range(len(table.head)) if columns is None else columns
    cells = [[table.head[k], *(row[k] for row in table.rows)] for k in chosen]
    widest = [max(len(line) for cell in column for line in cell.split("\n")) for column in cells]
    return sum(widest) + GAP * (len(widest) - 1)


def folded(table: Table, room: int, first: int = 1) -> list[Table]:
    """The columns of a table in as many tables as `room` characters ask for, each with the `first` columns: the title stands above the
    first table, the note below the last."""
    kept = range(first)
    groups: list[list[int]] = []
    for k in range(first, len(table.head)):
        if groups and width(table, [*kept, *groups[-1], k]) <= room:
            groups[-1].append(k)
        else:
            groups.append([k])
    if len(groups) <= 1:
        return [table]
    last = len(groups) - 1
    return [
        Table(
            "" if n else table.title,
            tuple(table.head[k] for k in (*kept, *group)),
            [tuple(row[k] for k in (*kept, *group)) for row in table.rows],
            table.note if n == last else "",
        )
        for n, group in enumerate(groups)
    ]
