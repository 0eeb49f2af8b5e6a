"""Tables as Markdown: what the terminal and the HTML file show, for files that are read in a repository."""

from __future__ import annotations

from studies.reports.tables import Table


def table(shown: Table, level: int = 3) -> str:
    """A heading, the table and its note; columns of figures stand to the right.

    level: of the heading; 0 for none.
    """
    parts = [f"{'#' * level} {shown.title}\n"] if level and shown.title else []
    if shown.rows:
        head = "| " + " | ".join(_cell(name) for name in shown.head) + " |"
        rule = "|" + "|".join("--:" if _numbers(shown, i) else "---" for i in range(len(shown.head))) + "|"
        rows = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in shown.rows]
        parts.append("\n".join([head, rule, *rows]) + "\n")
    if shown.note:
        parts.append("\n\n".join(shown.note.splitlines()) + "\n")
    return "\n".join(parts)


def _numbers(shown: Table, column: int) -> bool:
    """Whether a column holds figures: not the first, and nothing in it that begins with a letter."""
    return column > 0 and not any(row[column][:1].isalpha() for row in shown.rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
