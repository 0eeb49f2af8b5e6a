"""What a figure shows, in words: for those who do not see it."""

from __future__ import annotations

import math
import re
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
    """A line with its name, where it runs and where it ends."""
    flat = trace.get("orientation") == "h"
    values, names = (trace.get(key, ()) for key in (("x", "y") if flat else ("y", "x")))
    if len(values) and isinstance(values[0], str):  # names upwards, figures along
        values, names = names, values
    found = [(v, n) for v, n in zip(values, names, strict=False) if isinstance(v, (int, float)) and math.isfinite(v)]
    if not found:
        return ""
    head = f"{plain(str(trace['name']))} " if trace.get("name") else ""
    if all(isinstance(n, str) for _, n in found) and len(found) <= _MOST:
        return head + ", ".join(f"{plain(str(n))} {number(v)}" for v, n in found)
    if len(found) == 1:
        return f"{head}{number(found[0][0])} at {_place(found[0][1])}"
    least, most = min(found, key=lambda pair: pair[0]), max(found, key=lambda pair: pair[0])
    ends = f", last {number(found[-1][0])} at {_place(found[-1][1])}" if "lines" in trace.get("mode", "") else ""
    return f"{head}from {number(least[0])} to {number(most[0])}{ends}"


def _place(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) else plain(str(value))
