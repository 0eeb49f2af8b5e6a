"""Figures of runs as Plotly's own objects: for notebooks, which show them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from studies.figures.composition import batch_composition
from studies.figures.gantt import requests
from studies.figures.latency import latency_cdf
from studies.figures.over_time import load_over_time
from studies.figures.style import Figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

    from studies.results import Run


def ttft_cdf(result: Run | Mapping[str, Run]) -> PlotlyFigure:
    """Time to first token of a run, or of several by name, with the SLO: for notebooks, as those below."""
    return _cdf("ttft", result)


def tpot_cdf(result: Run | Mapping[str, Run]) -> PlotlyFigure:
    """Time per output token after the first."""
    return _cdf("tpot", result)


def e2e_cdf(result: Run | Mapping[str, Run]) -> PlotlyFigure:
    """From arrival to the last token."""
    return _cdf("e2el", result)


def load(result: Run) -> PlotlyFigure:
    """Requests running and waiting, KV memory in use, and preemptions, over time."""
    engine = result.info.get("engine") or {}
    several = result.info.get("pools") or not engine
    return as_plotly(load_over_time(result.records, None if several else engine["num_gpu_blocks"] - 1))


def batches(result: Run) -> PlotlyFigure:
    """Tokens of prompts and of decodes in a mean step, and what steps took, over time."""
    return as_plotly(batch_composition(result.records))


def request_phases(result: Run, around: int | None = None) -> PlotlyFigure:
    """A bar a request by phase: queue, prefill, decode, preempted. around: a request; the slowest by default."""
    return as_plotly(requests(result.records, around=around))


def as_plotly(figure: Figure) -> PlotlyFigure:
    """A figure of this package as Plotly's own object, which notebooks show and `write_html` and `write_image` save."""
    from plotly.graph_objects import Figure as PlotlyFigure

    return PlotlyFigure(figure)


def _cdf(metric: str, result: Run | Mapping[str, Run]) -> PlotlyFigure:
    runs = dict(result) if isinstance(result, Mapping) else {result.name: result}
    slo = next(iter(runs.values())).slo if runs else None
    return as_plotly(latency_cdf(metric, {name: run.records for name, run in runs.items()}, slo))
