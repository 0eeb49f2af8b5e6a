"""The same figure on a dark page."""

from __future__ import annotations

from typing import Any

from studies.figures.style import BLUE, EDGE, GREY, GRID, INK, PALE, PAPER, SHADES, SKY, Figure, scale

DARK_PAPER, DARK_INK = "#0e1117", "#e8eaed"
DARK = {
    PAPER: DARK_PAPER,
    INK: DARK_INK,
    GRID: "#2b313b",
    EDGE: "#6f7885",
    GREY: "#98a1ac",
    PALE: "#4c5663",
    # The others of the palette are bright enough as they are; blue is not, and light blue keeps its distance from it.
    BLUE: "#2389CC",
    SKY: "#7CC8F2",
}
"""What each colour of `style` is on a dark page, where it differs."""
DARK_SHADES = ("#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")


def themed(figure: Figure, dark: bool) -> Figure:
    """A figure for a dark page, or as it is for a light one; what is given stays as it is, and long series are shared.

    Colours that are none of `style`'s stay, colour scales of areas too.
    """
    if not dark:
        return dict(figure)
    found: Figure = _recoloured(figure)
    drawn = found["layout"]
    drawn["paper_bgcolor"] = drawn["plot_bgcolor"] = DARK_PAPER
    drawn["font"] = {"color": DARK_INK} | drawn.get("font", {})
    drawn["hoverlabel"] = {"bgcolor": "#1c222c", "bordercolor": DARK[EDGE], "font": {"color": DARK_INK}} | drawn.get(
        "hoverlabel", {}
    )
    return found


def _recoloured(part: Any, key: str = "") -> Any:
    if isinstance(part, dict):
        return {name: _recoloured(value, name) for name, value in part.items()}
    if key == "colorscale" and part == scale(SHADES):
        return scale(DARK_SHADES)
    if key.lower().endswith("color"):
        if isinstance(part, str):
            return _dark(part)
        if isinstance(part, list):
            return [_dark(color) if isinstance(color, str) else color for color in part]
    if isinstance(part, list) and part and isinstance(part[0], dict):  # traces, shapes, annotations; no series
        return [_recoloured(item) for item in part]
    return part


def _dark(color: str) -> str:
    """A colour on a dark page; of one with a transparency, with the same."""
    if not color.startswith("rgba("):
        return DARK.get(color, color)
    *rgb, part = color[5:-1].split(",")
    found = DARK.get(_KNOWN.get(tuple(map(int, rgb)), ""))
    return color if found is None else f"rgba({','.join(map(str, _rgb(found)))},{part})"


def _rgb(color: str) -> tuple[int, ...]:
    return tuple(int(color[k : k + 2], 16) for k in (1, 3, 5))


_KNOWN = {_rgb(color): color for color in DARK}
