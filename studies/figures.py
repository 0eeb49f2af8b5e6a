"""Figures of runs: pure functions from records to Plotly figures (`{"data": [...], "layout": {...}}`).

Plain dictionaries, so that a report of a long run costs no second of Plotly object building; `plotly.graph_objects.Figure`
and `streamlit.plotly_chart` take them as they are. Long series are cut to about `POINTS` points that keep every extreme.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from serving.metrics import SLO, by_request, latencies
from serving.records import Records

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

    from studies.results import Run

Figure = dict[str, Any]
Array = NDArray[Any]

POINTS = 2000
# Okabe and Ito: told apart with any colour vision, and in grey by their order of lightness.
BLUE, ORANGE, GREEN, RED, SKY, PINK = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
PALETTE = (BLUE, RED, GREEN, ORANGE, PINK, SKY)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "solid")
INK, GRID = "#222222", "#e6e6e6"
LATENCY_AXES = {  # metric -> (title, unit, factor from seconds)
    "ttft": ("Time to first token", "s", 1.0),
    "tpot": ("Time per output token", "ms", 1e3),
    "e2el": ("End-to-end latency", "s", 1.0),
    "queue": ("Queue time", "s", 1.0),
}
SLO_FIELD = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e"}


def numbers(values: Array) -> list[float]:
    """Five significant digits are more than a screen shows, and a quarter of the bytes."""
    return [float(f"{v:.5g}") for v in values.tolist()]


def axis(title: str, **more: Any) -> dict[str, Any]:
    base = {
        "title": {"text": title, "font": {"size": 12}, "standoff": 8},
        "gridcolor": GRID,
        "linecolor": "#999999",
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "#999999",
    }
    return base | more


def layout(height: int = 300, **more: Any) -> dict[str, Any]:
    base = {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 28, "b": 8},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
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
    return base | more


def thin(x: Array, y: Array, points: int = POINTS) -> tuple[Array, Array]:
    """At most about `points` of a series: the least and the greatest of each of points / 2 stretches, in order."""
    n = len(x)
    if n <= points:
        return x, y
    edges = np.linspace(0, n, points // 2, dtype=np.int64)
    keep = {0, n - 1}
    for lo, hi in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        part = y[lo:hi]
        keep.update((lo + int(part.argmin()), lo + int(part.argmax())))
    rows = np.array(sorted(keep))
    return x[rows], y[rows]


def cumulative(values: Array, points: int = 600) -> tuple[Array, Array]:
    """Empirical CDF: sorted values and the share of requests at or below each, ends and tails kept."""
    x = np.sort(values)
    share = np.arange(1, len(x) + 1) / max(len(x), 1)
    if len(x) > points:
        body = np.linspace(0, len(x) - 1, points - 100).astype(np.int64)
        rows = np.unique(np.concatenate([body, np.arange(len(x) - 100, len(x))]))
        x, share = x[rows], share[rows]
    return x, share


def latency_cdf(metric: str, runs: Mapping[str, Records], slo: SLO | None = None) -> Figure:
    """CDF of `ttft`, `tpot`, `e2el` or `queue` of one or several runs, the SLO as a vertical line."""
    title, unit, factor = LATENCY_AXES[metric]
    data, widest = [], []
    for k, (name, records) in enumerate(runs.items()):
        values = latencies(records)[metric] * factor
        if not len(values):
            continue
        widest.append((float(np.median(values)), float(values.max())))
        x, share = cumulative(values)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": numbers(x),
                "y": numbers(share * 100),
                "line": {"color": PALETTE[k % 6], "width": 2, "shape": "hv", "dash": DASHES[k % 6]},
                "hovertemplate": f"%{{y:.1f}} % within %{{x:.4g}} {unit}<extra>{name}</extra>",
            }
        )
    log = any(most > 20 * middle > 0 for middle, most in widest)
    figure: Figure = {
        "data": data,
        "layout": layout(
            xaxis=axis(f"{title} ({unit})", **({"type": "log", "dtick": 1} if log else {"rangemode": "tozero"})),
            yaxis=axis("Requests (%)", range=[0, 101]),
            showlegend=len(data) > 1,
        ),
    }
    if len(data) > 1:  # two lines above the plot: the legend, and below it the SLO
        figure["layout"]["margin"]["t"] = 52
        figure["layout"]["legend"]["y"] = 1.1
    limit = getattr(slo, SLO_FIELD.get(metric, ""), None) if slo is not None else None
    if limit is not None:
        at = limit * factor
        where = float(np.log10(at)) if log else at
        figure["layout"]["shapes"] = [
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": INK, "dash": "dot"},
            }
        ]
        figure["layout"]["annotations"] = [
            {"x": where, "y": 1, "yref": "paper", "yanchor": "bottom", "text": f"SLO {at:g} {unit}", "showarrow": False}
        ]
    return figure


def load_over_time(records: Records, usable_blocks: int | None = None) -> Figure:
    """Requests running and waiting, and KV memory in use, over time; summed over replicas."""
    data = [
        _line(*_summed(records, "running"), "running", BLUE, "y"),
        _line(*_summed(records, "waiting"), "waiting", RED, "y", dash="dot"),
    ]
    at, blocks = _summed(records, "kv_blocks")
    replicas = max(1, len(np.unique(records.steps["replica"])))
    unit = "KV blocks"
    if usable_blocks:
        blocks, unit = blocks / (usable_blocks * replicas) * 100, "KV memory (%)"
    data.append(_line(at, blocks, unit, GREEN, "y2"))
    top = {"range": [0, 101]} if usable_blocks else {"rangemode": "tozero"}
    return {
        "data": data,
        "layout": layout(
            380,
            xaxis=axis("Time (s)", anchor="y2"),
            yaxis=axis("Requests", domain=[0.46, 1], rangemode="tozero"),
            yaxis2=axis(unit, domain=[0, 0.38], **top),
        ),
    }


def batch_composition(records: Records, bins: int = 200) -> Figure:
    """Tokens of a mean step, of prompts and of decodes, and the duration of steps, over time."""
    steps = records.steps
    n = len(steps["end_ns"])
    empty: Array = np.empty(0)
    at, prefill, decode, mean, most = empty, empty, empty, empty, empty
    if n:
        start = steps["start_ns"] / 1e9
        taken = (steps["end_ns"] - steps["start_ns"]) / 1e6
        edges = np.linspace(start.min(), start.max() + 1e-9, min(bins, n) + 1)
        which = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, len(edges) - 2)
        size = len(edges) - 1
        count = np.bincount(which, minlength=size)
        seen = count > 0
        at = ((edges[:-1] + edges[1:]) / 2)[seen]

        def average(values: Array) -> Array:
            sums: Array = np.bincount(which, weights=values, minlength=size)[seen]
            return sums / count[seen]

        verified = steps["verify_sequences"] + steps["draft_tokens"]  # newest tokens, and drafts behind them
        of_prompts, of_answers = steps["prefill_tokens"] - verified, steps["decode_sequences"] + verified
        prefill, decode, mean = (average(v) for v in (of_prompts, of_answers, taken))
        longest = np.zeros(size)
        np.maximum.at(longest, which, taken)
        most = longest[seen]
    area = {"type": "scatter", "mode": "lines", "stackgroup": "tokens", "x": numbers(at), "yaxis": "y"}
    return {
        "data": [
            area | {"name": "decode", "y": numbers(decode), "line": {"width": 0.5, "color": BLUE}},
            area | {"name": "prefill", "y": numbers(prefill), "line": {"width": 0.5, "color": ORANGE}},
            _line(at, mean, "mean step", INK, "y2", shape="linear"),
            _line(at, most, "longest step", PINK, "y2", dash="dot", shape="linear"),
        ],
        "layout": layout(
            380,
            xaxis=axis("Time (s)", anchor="y2"),
            yaxis=axis("Tokens a step", domain=[0.46, 1], rangemode="tozero"),
            yaxis2=axis("Step time (ms)", domain=[0, 0.38], rangemode="tozero"),
        ),
    }


def predicted_against_measured(
    predicted: Records, measured: Records, metric: str = "e2el", points: int = POINTS
) -> Figure:
    """One dot a request that finished in both runs: executed on x, simulated on y, the diagonal is agreement."""
    title, unit, factor = LATENCY_AXES[metric]
    x, y = by_request(measured, metric) * factor, by_request(predicted, metric) * factor
    rows = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(rows) > points:
        rows = rows[np.linspace(0, len(rows) - 1, points).astype(np.int64)]
    x, y = x[rows], y[rows]
    top = float(max(x.max(initial=0), y.max(initial=0))) * 1.05 or 1.0
    diagonal = {"type": "scatter", "mode": "lines", "x": [0, top], "y": [0, top], "name": "equal"}
    return {
        "data": [
            diagonal | {"line": {"color": "#777777", "dash": "dash", "width": 1}, "hoverinfo": "skip"},
            {
                "type": "scatter",
                "mode": "markers",
                "name": "request",
                "x": numbers(x),
                "y": numbers(y),
                "text": [f"request {i}" for i in rows.tolist()],
                "marker": {"color": BLUE, "size": 6, "opacity": 0.55},
                "hovertemplate": f"%{{text}}<br>executed %{{x:.4g}} {unit}<br>simulated %{{y:.4g}} {unit}<extra></extra>",
            },
        ],
        "layout": layout(
            340,
            showlegend=False,
            xaxis=axis(f"{title}, executed ({unit})", range=[0, top]),
            yaxis=axis(f"{title}, simulated ({unit})", range=[0, top]),
        ),
    }


def _line(x: Array, y: Array, name: str, color: str, on: str, dash: str = "solid", shape: str = "hv") -> dict[str, Any]:
    x, y = thin(x, y)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": numbers(x),
        "y": numbers(y),
        "yaxis": on,
        "line": {"color": color, "width": 1.5, "dash": dash, "shape": shape},
    }


def _summed(records: Records, name: str) -> tuple[Array, Array]:
    """A step column as a function of time in seconds, summed over replicas, 0 while a replica is idle."""
    steps = records.steps
    times, changes = [], []
    for k in np.unique(steps["replica"]):
        rows = steps["replica"] == k
        start, end, value = steps["start_ns"][rows], steps["end_ns"][rows], steps[name][rows]
        idle = np.append(start[1:] > end[:-1], True) if len(start) else np.empty(0, dtype=bool)
        at = np.concatenate([start, end[idle]])
        level = np.concatenate([value, np.zeros(int(idle.sum()), dtype=np.int64)])
        order = np.argsort(at, kind="stable")
        times.append(at[order])
        changes.append(np.diff(level[order], prepend=0))
    if not times:
        return np.empty(0), np.empty(0)
    at, change = np.concatenate(times), np.concatenate(changes)
    order = np.argsort(at, kind="stable")
    return at[order] / 1e9, np.cumsum(change[order])


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
    """Requests running and waiting, and KV memory in use, over time."""
    engine = result.info.get("engine") or {}
    several = result.info.get("pools") or not engine
    return as_plotly(load_over_time(result.records, None if several else engine["num_gpu_blocks"] - 1))


def batches(result: Run) -> PlotlyFigure:
    """Tokens of prompts and of decodes in a mean step, and what steps took, over time."""
    return as_plotly(batch_composition(result.records))


def as_plotly(figure: Figure) -> PlotlyFigure:
    """A figure of this module as Plotly's own object, which notebooks show and `write_html` and `write_image` save."""
    from plotly.graph_objects import Figure as PlotlyFigure

    return PlotlyFigure(figure)


def _cdf(metric: str, result: Run | Mapping[str, Run]) -> PlotlyFigure:
    runs = dict(result) if isinstance(result, Mapping) else {result.name: result}
    slo = next(iter(runs.values())).slo if runs else None
    return as_plotly(latency_cdf(metric, {name: run.records for name, run in runs.items()}, slo))
