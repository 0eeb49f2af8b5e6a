"""A decision as a folder: a page, the document, and a table of its worlds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from studies.figures.alt_text import joined, number
from studies.figures.series import numbers
from studies.figures.style import BLUE, GREY, INK, PALE, PAPER, RED, Figure, axis, layout, upright
from studies.reports import files, html, tables
from studies.reports.strict_json import dumps
from studies.reports.tables import Table
from studies.uncertainty import words
from studies.uncertainty.decision import Decision

if TYPE_CHECKING:
    import pyarrow as pa

_BINS = 30


def write(found: Decision, folder: Path) -> Path:
    """Writes decide.html, decide.json and worlds.parquet into a folder; other files in it stay. The page's path."""
    document = dumps(found.to_dict()) + "\n"
    files.write(
        folder,
        {"decide.json": document, "worlds.parquet": worlds(found), "decide.html": html.render(page(found))},
    )
    return folder / "decide.html"


def page(found: Decision) -> html.Page:
    """The answer with its worlds, and what is known of the inputs."""
    drawn = [("How the two differ", differences(found), True)] if found.same() < 1 and len(found.worlds) > 1 else []
    if (bars := shares(found)) is not None:
        drawn.append(("What the spread comes from", bars, True))
    sections = [html.Section("", "\n".join(words.sentences(found)), (), [words.world_table(found)], drawn)]
    if more := [table for table in (words.influence_table(found), words.unstated_table(found)) if table is not None]:
        sections.append(html.Section("What is known of the inputs", tables=more))
    folded = [(f"Scenario {name}", text) for name, text in zip(found.names, found.texts, strict=True)]
    title = f"{found.names[0]} or {found.names[1]}?"
    lead = f"{tables.label(found.metric)}, {found.better} is better. Each world has values of its own for what the calibration does not know."
    return html.Page(title, lead, sections, folded)


def all_tables(found: Decision) -> list[Table]:
    """What the terminal shows."""
    asked = (words.world_table(found), words.influence_table(found))
    return [table for table in asked if table is not None]


def differences(found: Decision) -> Figure:
    """Histogram of what the first has more than the second: in the colour of the one that is better there."""
    a, b = found.defined.T
    values = (a / b - 1) * 100 if found.ratios else a - b
    low, high = np.percentile(values, [0.5, 99.5]).tolist()
    edges = _edges(min(low, 0.0), max(high, 0.0))
    shown = np.clip(values, edges[0], edges[-1])
    counts, _ = np.histogram(shown, edges)
    middle = (edges[:-1] + edges[1:]) / 2
    better = (values < 0, values > 0) if found.better == "lower" else (values > 0, values < 0)
    first_is_better = middle < 0 if found.better == "lower" else middle > 0
    data = []
    for which, name, colour in ((first_is_better, found.names[0], BLUE), (~first_is_better, found.names[1], RED)):
        data.append(
            {
                "type": "bar",
                "name": f"{name} is better",
                "x": numbers(middle[which]),
                "y": counts[which].tolist(),
                "width": float(f"{edges[1] - edges[0]:.5g}"),
                "marker": {"color": colour, "line": {"color": PAPER, "width": 1}},
                "hovertemplate": "%{y} worlds<extra></extra>",
            }
        )
    unit = " (%)" if found.ratios else ""
    title = f"{tables.label(found.metric)} of {found.names[0]} against {found.names[1]}{unit}"
    zero = upright(0, dash="solid")
    chances = [
        f"{name} is better in {number(100 * part.mean())} %" for name, part in zip(found.names, better, strict=True)
    ]
    low, middle, high = (number(v) for v in np.percentile(values, [5, 50, 95]))
    alt = f"Histogram of {title}, over {len(values):,} worlds: {joined(chances)}. Median {middle}, 90 % of worlds between {low} and {high}."
    figure = layout(
        320, alt, xaxis=axis(title), yaxis=axis("Worlds", rangemode="tozero"), shapes=[zero], barmode="overlay"
    )
    return {"data": data, "layout": figure}


def _edges(low: float, high: float) -> np.ndarray:
    """Of equal bins, one of them beginning at 0."""
    width = (high - low) / _BINS or 1.0
    return np.arange(np.floor(low / width), np.ceil(high / width) + 1) * width


def shares(found: Decision) -> Figure | None:
    """A bar an input: its part of the spread, with its interval; None where nothing is uncertain."""
    known = found.influences
    if not known.ranked:
        return None
    rows = [(one.group, one.share, one.seen) for one in known.ranked][::-1]
    names, parts = [name for name, _, _ in rows], [(share.estimate or 0.0) * 100 for _, share, _ in rows]
    above = [((share.high or 0.0) - (share.estimate or 0.0)) * 100 for _, share, _ in rows]
    below = [((share.estimate or 0.0) - (share.low or 0.0)) * 100 for _, share, _ in rows]
    colours = [BLUE if seen else PALE for _, _, seen in rows]
    others = [("the rest", known.rest)]
    if known.requests is not None:
        others.append(("draw of requests", known.requests))
    names = [name for name, _ in others] + names
    parts = [part * 100 for _, part in others] + parts
    above, below = [0.0] * len(others) + above, [0.0] * len(others) + below
    colours = [GREY] * len(others) + colours
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": numbers(np.array(parts)),
        "marker": {"color": colours},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": numbers(np.array(above)),
            "arrayminus": numbers(np.array(below)),
            "color": INK,
            "thickness": 1,
        },
        "hovertemplate": "%{y}: %{x:.1f} %<extra></extra>",
    }
    told = "; ".join(f"{name} {number(part)} %" for name, part in zip(names[::-1], parts[::-1], strict=True))
    figure = layout(
        90 + 30 * len(names),
        f"Share of the spread that each input gives: {told}.",
        xaxis=axis("Share of the spread (%)", rangemode="tozero"),
        yaxis=axis("", ticks="", ticklabelstandoff=6),
        showlegend=False,
        bargap=0.35,
    )
    return {"data": [bars], "layout": figure}


def worlds(found: Decision) -> pa.Table:
    """A row a world: its seed, the value of every input, and both figures."""
    import pyarrow as pa

    values = [found.worlds.values(k) for k in range(len(found.worlds))]
    columns: dict[str, pa.Array] = {
        "world": pa.array(range(len(values)), pa.int64()),
        "seed": pa.array(found.worlds.seeds, pa.int64()),
    }
    for one in found.inputs.drawn:
        columns[one.key] = pa.array([row[one.key] for row in values], pa.float64())
    for k, name in enumerate(("first", "second")):
        figures = [v if np.isfinite(v) else None for v in found.values[:, k].tolist()]
        columns[f"{name}.{found.metric}"] = pa.array(figures, pa.float64())
    return pa.table(columns)
