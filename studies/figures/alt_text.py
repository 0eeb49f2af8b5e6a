"""What a figure shows, in words: for those who do not see it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from studies.figures.style import Figure

_MOST = 6
"""Lines that are told one by one."""
_TAG = re.compile(r"<[^>]*>")
_DRAWN = {
    "bar": "Bars of ",
    "heatmap": "Heat map of ",
    "parcoords": "Parallel coordinates of ",
}


def described(figure: Figure) -> str:
    """One or two plain sentences: those that the figure's function gave it, else what its data say."""
    given = (figure["layout"].get("meta") or {}).get("alt")
    if given:
        return str(given)
    traces = [t for t in figure["data"] if t.get("hoverinfo") != "skip"]
    if not traces:
        return "An empty figure."
    kind = traces[0].get("type", "scatter")
    if kind == "parcoords":
        axes = [str(one.get("label", "")) for one in traces[0]["dimensions"]]
        return f"Parallel coordinates of {joined(axes)}."
    x, y = (_title(figure, name) for name in ("xaxis", "yaxis"))
    if kind == "heatmap":
        cells = [v for row in traces[0]["z"] for v in row if v is not None]
        return f"Heat map of {len(cells)} cells: {y} against {x}."
    against = f"{y} against {x}" if x and y else x or y
    told = [text for t in traces[:_MOST] if (text := _told(t))]
    more = f"; and {len(traces) - _MOST} more" if len(traces) > _MOST else ""
    return f"{_DRAWN.get(kind, '')}{against}: {'; '.join(told)}{more}." if told else f"{against}: nothing is shown."


def number(value: float) -> str:
    """Three significant digits."""
    value = float(value)
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == 0 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """A time for people: in milliseconds below a second."""
    return f"{number(seconds)} s" if abs(seconds) >= 1 or not seconds else f"{number(seconds * 1e3)} ms"


def counted(n: int, thing: str, several: str = "") -> str:
    """`1 request`, `2 requests`."""
    return f"{n:,} {thing if n == 1 else several or thing + 's'}"


def joined(names: list[str]) -> str:
    """`A, B and C`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def plain(text: str) -> str:
    """Without Plotly's tags."""
    return _TAG.sub(" ", text).replace("  ", " ").strip()


def _title(figure: Figure, name: str) -> str:
    title = figure["layout"].get(name, {}).get("title") or {}
    return plain(str(title.get("text", "") if isinstance(title, dict) else title))


def _told(trace: dict[str, Any]) -> str:
    """A line with its name, where it begins and where it ends; of points how far they reach."""
    flat = trace.get("orientation") == "h"
    values, names = (trace.get(key, ()) for key in (("x", "y") if flat else ("y", "x")))
    if len(values) and isinstance(values[0], str):  # names upwards, figures along
        values, names = names, values
    found = [(n, v) for v, n in zip(values, names, strict=False) if isinstance(v, (int, float)) and math.isfinite(v)]
    if not found:
        return ""
    head = f"{plain(str(trace['name']))} " if trace.get("name") else ""
    if all(isinstance(n, str) for n, _ in found) and len(found) <= _MOST:
        return head + ", ".join(f"{plain(str(n))} {number(v)}" for n, v in found)
    if "lines" in trace.get("mode", ""):
        return head + course(found)
    least, most = (end(v for _, v in found) for end in (min, max))
    return f"{head}from {number(least)} to {number(most)}"


def course(points: Sequence[tuple[Any, float]]) -> str:
    """`from 1 at 2 to 9 at 8`, and its extremes where they are not at its ends; points: where, how much; at least one."""
    (first, begin), (last, end) = points[0], points[-1]
    if len(points) == 1:
        return f"{number(begin)} at {_place(first)}"
    said = f"from {number(begin)} at {_place(first)} to {number(end)} at {_place(last)}"
    for word, (where, value) in (
        ("least", min(points, key=lambda point: point[1])),
        ("most", max(points, key=lambda point: point[1])),
    ):
        if number(value) not in (number(begin), number(end)):
            said += f", {word} {number(value)} at {_place(where)}"
    return said


def _place(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) else plain(str(value))
