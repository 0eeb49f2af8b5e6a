"""How figures look on a light page: colours, axes, margins. Every colour of a figure is one of these, so that `themes` knows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Figure = dict[str, Any]

# Okabe and Ito: told apart with any colour vision, and in grey by their order of lightness.
BLUE, ORANGE, GREEN, RED, SKY, PINK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
PALETTE = (BLUE, RED, GREEN, ORANGE, PINK, SKY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid")
PAPER, INK, GRID = "#ffffff", "#222222", "#e6e6e6"
GREY = "#6b7480"
"""What a line is held against: baselines, diagonals, bars of error."""
PALE = "#b8c4cc"
"""Areas of no weight: time in a queue, parts that nothing shows of."""
EDGE = "#999999"
"""Ticks, and the line that they stand on."""
# Viridis without the end that a thin line has no contrast at.
SHADES = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779")

LETTERS = 40
"""Of a line along an axis, so that it is whole on a telephone."""
AROUND = {"l": 62, "r": 16, "t": 28, "b": 44}
"""Pixels around a plot whose axes are `measured`."""
FAR = 20.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""


def broken(text: str, width: int = LETTERS) -> str:
    """A text in lines of about that many characters; lines that it has stay lines."""
    if len(text) <= width:
        return text
    import textwrap

    return "<br>".join(
        part for line in text.split("<br>") for part in textwrap.wrap(line, width, break_on_hyphens=False)
    )


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis; more: of Plotly's own attributes."""
    base = {
        "title": {"text": broken(title), "font": {"size": 12}, "standoff": 8},
        "gridcolor": GRID,
        "linecolor": EDGE,
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": EDGE,
    }
    return base | more


def measured(title: str, **more: Any) -> dict[str, Any]:
    """An axis in margins of `AROUND`, for short titles and numbers of up to five digits: Plotly takes twice as long to draw where it
    finds the margins itself."""
    return axis(title, automargin=False, **more)


def layout(height: int = 300, alt: str = "", **more: Any) -> dict[str, Any]:
    """The rest of a figure; height: in pixels. alt: what it shows, in a sentence or two. more: of Plotly's own attributes."""
    base = {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "paper_bgcolor": PAPER,
        "plot_bgcolor": PAPER,
        "font": {"family": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", "size": 12, "color": INK},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "closest",
    }
    if alt:
        base["meta"] = {"alt": alt}
    return base | more


def far_apart(values: Iterable[float]) -> bool:
    """Whether values differ so much that only a logarithm shows them all: all above 0, and the largest `FAR` times the least."""
    found = list(values)
    return bool(found) and min(found) > 0 and max(found) > FAR * min(found)


def in_ratios(log: bool) -> dict[str, Any]:
    """What an axis has more if it is logarithmic, and if it is not."""
    return {"type": "log", "dtick": 1, "exponentformat": "none"} if log else {"rangemode": "tozero"}


def faint(color: str, part: float = 0.16) -> str:
    """A colour for the band around its line."""
    red, green, blue = (int(color[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red},{green},{blue},{part:g})"


def scale(colors: Sequence[str]) -> list[list[float | str]]:
    """A colour scale through colours that are equally far apart."""
    return [[k / (len(colors) - 1), color] for k, color in enumerate(colors)]


def across(y: float, color: str = INK, dash: str = "dot", width: float = 1, **more: Any) -> dict[str, Any]:
    """A line over the whole width, at a height: a limit."""
    line = {"color": color, "dash": dash, "width": width}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line} | more


def upright(x: float, color: str = INK, dash: str = "dot", width: float = 1, **more: Any) -> dict[str, Any]:
    """A line over the whole height."""
    line = {"color": color, "dash": dash, "width": width}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line} | more
