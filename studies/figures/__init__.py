"""Figures of runs: pure functions from records to Plotly figures (`{"data": [...], "layout": {...}}`).

Plain dictionaries, so that a report of a long run costs no second of Plotly object building; `plotly.graph_objects.Figure`
and `streamlit.plotly_chart` take them as they are. Long series are cut to about `POINTS` points that keep every extreme.
`themed` gives the same figure on a dark page, `described` says in words what it shows.
"""

from studies.figures.agreement import predicted_against_measured
from studies.figures.alt_text import described
from studies.figures.composition import batch_composition
from studies.figures.latency import LATENCY_AXES, latency_cdf
from studies.figures.notebook import as_plotly, batches, e2e_cdf, load, request_phases, tpot_cdf, ttft_cdf
from studies.figures.over_time import load_over_time
from studies.figures.series import POINTS, cumulative, numbers, thin
from studies.figures.style import (
    BLUE,
    DASHES,
    FAR,
    GREEN,
    GREY,
    GRID,
    INK,
    ORANGE,
    PALE,
    PALETTE,
    PAPER,
    PINK,
    RED,
    SKY,
    Figure,
    axis,
    faint,
    far_apart,
    in_ratios,
    layout,
)
from studies.figures.themes import themed

__all__ = [
    "BLUE",
    "DASHES",
    "FAR",
    "GREEN",
    "GREY",
    "GRID",
    "INK",
    "LATENCY_AXES",
    "ORANGE",
    "PALE",
    "PALETTE",
    "PAPER",
    "PINK",
    "POINTS",
    "RED",
    "SKY",
    "Figure",
    "as_plotly",
    "axis",
    "batch_composition",
    "batches",
    "cumulative",
    "described",
    "e2e_cdf",
    "faint",
    "far_apart",
    "in_ratios",
    "latency_cdf",
    "layout",
    "load",
    "load_over_time",
    "numbers",
    "predicted_against_measured",
    "request_phases",
    "themed",
    "thin",
    "tpot_cdf",
    "ttft_cdf",
]
