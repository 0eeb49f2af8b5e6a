"""What stands in a figure's place where there is nothing to draw."""

from __future__ import annotations

import textwrap

from studies.figures.style import GREY, Figure, layout

LETTERS = 44
"""Of a line, so that it is read on a telephone."""


def notice(text: str) -> Figure:
    """A figure without axes that says why it is empty."""
    lines = textwrap.wrap(text, LETTERS)
    hidden = {"visible": False, "fixedrange": True}
    said = {
        "text": "<br>".join(lines),
        "x": 0.5,
        "y": 0.5,
        "xref": "paper",
        "yref": "paper",
        "showarrow": False,
        "font": {"size": 13, "color": GREY},
    }
    return {"data": [], "layout": layout(60 + 20 * len(lines), text, xaxis=hidden, yaxis=hidden, annotations=[said])}
