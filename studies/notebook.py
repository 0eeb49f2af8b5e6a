"""How a run looks in a notebook."""

from __future__ import annotations

from html import escape

from studies.reports import report, run_tables
from studies.results import Run


def html_of(run: Run) -> str:
    """Headline figures of a run as a table of two lines, and what binds."""
    cards = report.cards(run.summary)
    names = "".join(f"<th>{escape(name)}</th>" for _, name in cards)
    values = "".join(f"<td><b>{escape(value)}</b></td>" for value, _ in cards)
    said = escape(run.info.get("binding", {}).get("sentence", ""))
    return f"<p>{escape(run_tables.heading(run))}</p><table><tr>{names}</tr><tr>{values}</tr></table><p>{said}</p>"
