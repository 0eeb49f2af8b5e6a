"""How well a profile fits what was measured. Pure functions to Plotly dictionaries; where the points are not carried, it is said."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from sim.operator_profile import OperatorProfile
from sim.profile import Measurement, Profile
from sim.profile_cost import ProfileCost
from sim.profiles import AnyProfile
from studies.figures.notice import notice
from studies.figures.series import numbers
from studies.figures.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    PALE,
    RED,
    Figure,
    axis,
    faint,
    far_apart,
    layout,
    upright,
)
from studies.figures.ticks import log_ticks
from studies.profiles.sheet import kind_of
from studies.reports.tables import percent

MARKS = {"decode": (BLUE, "circle"), "prefill": (ORANGE, "diamond"), "mixed": (RED, "square")}
Over = Literal["tokens", "context"]
AXES: dict[Over, str] = {"tokens": "Tokens of the step", "context": "Context behind the step's tokens"}
MARGIN = {"l": 8, "r": 12, "t": 40, "b": 8}


class _Step(NamedTuple):
    """One measured shape beside its prediction, ms."""

    kind: str
    measured: float
    predicted: float
    of: Measurement

    @property
    def residual(self) -> float:
        return self.measured / self.predicted - 1

    def over(self, what: Over) -> int:
        shape = self.of.shape
        return shape.tokens if what == "tokens" else shape.decode_context + sum(context for _, context in shape.prefill)


def _steps(profile: Profile) -> list[_Step]:
    cost = ProfileCost(profile)
    return [
        _Step(kind_of(m.prefill, m.decode_sequences), m.ns / 1e6, cost.step_ns(m.shape) / 1e6, m)
        for m in profile.measurements
    ]


def without_points(profile: AnyProfile) -> str | None:
    """Why a profile shows no single points; None where it does."""
    if isinstance(profile, OperatorProfile):
        return (
            "A profile of operators holds curves and grids through the measured rows, not the rows themselves. How far each row "
            "is from a prediction without it stands in the cross-validated errors."
        )
    if not profile.measurements:
        return "This profile was fitted to an engine's step log and does not carry the steps; it has the quantiles of their residuals."
    return None


def predicted_against_measured(profile: AnyProfile) -> Figure:
    """Step times, predicted up and measured along, a dot a shape; the diagonal is agreement."""
    if (why := without_points(profile)) is not None:
        return notice(why)
    assert isinstance(profile, Profile)
    steps = _steps(profile)
    values = [value for step in steps for value in (step.measured, step.predicted)]
    log = far_apart(values)
    low, high = (min(values) / 1.15, max(values) * 1.15) if log else (0.0, max(values) * 1.05)
    scale = log_ticks(low, high) if log else {"rangemode": "tozero"}
    data = []
    for kind, mine in _by_kind(steps).items():
        data.append(
            _dots(kind, mine)
            | {"x": numbers(np.array([s.measured for s in mine])), "y": numbers(np.array([s.predicted for s in mine]))}
        )
    line = {"color": INK, "dash": "dash", "width": 1}
    ends = [float(f"{low:.4g}"), float(f"{high:.4g}")]
    data.append(
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "line": line, "name": "equal", "hoverinfo": "skip"}
    )
    apart = sorted(abs(step.residual) for step in steps)
    alt = f"Times of {len(steps)} measured steps, predicted against measured: half are off by less than {percent(apart[len(apart) // 2])}."
    return {
        "data": data,
        "layout": layout(
            380, alt, xaxis=axis("Step time, measured (ms)", **scale), yaxis=axis("predicted (ms)", **scale),
            margin=MARGIN,
        ),
    }  # fmt: skip


def residuals(profile: AnyProfile, over: Over = "tokens") -> Figure:
    """Measured / predicted - 1 of each shape over tokens or context, with the spread of its repeats: structure is a missing term."""
    if (why := without_points(profile)) is not None:
        return _quantiles(profile) if isinstance(profile, Profile) and profile.residuals else notice(why)
    assert isinstance(profile, Profile)
    steps = _steps(profile)
    data = []
    for kind, mine in _by_kind(steps).items():
        spread = {
            "type": "data",
            "array": numbers(np.array([s.of.spread * 50 for s in mine])),
            "color": PALE,
            "thickness": 1,
            "width": 0,
        }
        data.append(
            _dots(kind, mine)
            | {
                "x": [s.over(over) for s in mine],
                "y": numbers(np.array([s.residual * 100 for s in mine])),
                "error_y": spread,
            }
        )
    floor = float(np.median([s.of.spread for s in steps])) / 2
    inside = sum(abs(s.residual) <= s.of.spread / 2 for s in steps) / len(steps)
    alt = (
        f"Residuals of {len(steps)} steps over {AXES[over].lower()}; {percent(inside)} are within the spread of their own repeats, whose "
        f"median is ± {percent(floor)}."
    )
    at = [step.over(over) for step in steps]
    log = log_ticks(min(at) / 1.3, max(at) * 1.3) if over == "tokens" else {}
    return {
        "data": data,
        "layout": layout(
            360,
            alt,
            xaxis=axis(AXES[over], **log),
            yaxis=axis("measured / predicted - 1 (%)", zeroline=True, zerolinecolor=INK, zerolinewidth=1),
            shapes=[
                {
                    "type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": -floor * 100, "y1": floor * 100, "layer": "below",
                    "line": {"width": 0}, "fillcolor": faint(GREY),
                }
            ],
            annotations=[
                {
                    "text": f"band: median spread of repeats, ± {percent(floor)}", "x": 1, "y": 0, "xref": "paper", "yref": "paper",
                    "xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"size": 11, "color": GREY},
                }
            ],
            margin=MARGIN,
        ),
    }  # fmt: skip


def _quantiles(profile: Profile) -> Figure:
    """The distribution of residuals, where only that was kept."""
    share = np.linspace(0, 100, len(profile.residuals))
    values = np.array(profile.residuals) * 100
    low, high = np.interp((5, 95), share, values)
    return {
        "data": [
            {
                "type": "scatter", "mode": "lines", "x": numbers(values), "y": numbers(share), "line": {"color": BLUE, "width": 2},
                "name": "residuals", "hovertemplate": "%{y:.0f} % of steps at or below %{x:.3g} %<extra></extra>",
            }
        ],
        "layout": layout(
            320,
            f"Distribution of residuals of logged steps: nine of ten lie between {low:.3g} and {high:.3g} %. The steps themselves are not carried.",
            xaxis=axis("measured / predicted - 1 (%)"),
            yaxis=axis("Steps (%)", range=[0, 101]),
            shapes=[upright(0, INK)],
        ),
    }  # fmt: skip


def cross_validated(profile: AnyProfile) -> Figure:
    """Errors of what was predicted without being seen, by operator or by kind of step: mean, 90th percentile."""
    found = {name: errors for name, errors in profile.cv_error.items() if errors.observations}
    if not found:
        return notice("This profile holds no cross-validated errors.")
    names = list(found)
    shown = [name.replace(" over ", "<br>over ") for name in names]
    said = [
        f"{e.observations:,} predicted, mean error {percent(e.signed_mean, signed=True)}, worst {percent(e.worst, signed=True)}"
        for e in found.values()
    ]
    about: dict[str, Any] = {"type": "scatter", "mode": "markers", "y": list(range(len(names))), "text": said}
    worst = max(names, key=lambda name: found[name].mape)
    hover = "%{x:.2g} %<br>%{text}<extra>"
    return {
        "data": [
            about
            | {
                "name": "mean size (MAPE)",
                "x": numbers(np.array([e.mape * 100 for e in found.values()])),
                "marker": {"color": BLUE, "size": 10},
                "hovertemplate": f"{hover}MAPE</extra>",
            },
            about
            | {
                "name": "90th percentile",
                "x": numbers(np.array([e.p90 * 100 for e in found.values()])),
                "marker": {"color": RED, "symbol": "diamond-open", "size": 10, "line": {"width": 2}},
                "hovertemplate": f"{hover}p90</extra>",
            },
        ],
        "layout": layout(
            110 + 36 * len(names),
            f"Cross-validated errors of {len(names)} {'operators' if isinstance(profile, OperatorProfile) else 'kinds of steps'}; the largest mean is "
            f"{percent(found[worst].mape)} ({worst}).",
            xaxis=axis("error, predicted without itself (%)", rangemode="tozero"),
            yaxis=axis("", tickvals=list(range(len(names))), ticktext=shown, range=[len(names) - 0.5, -0.5]),
            margin=MARGIN,
        ),
    }  # fmt: skip


def _by_kind(steps: list[_Step]) -> dict[str, list[_Step]]:
    found = {kind: [step for step in steps if step.kind == kind] for kind in MARKS}
    return {kind: mine for kind, mine in found.items() if mine}


def _dots(kind: str, mine: list[_Step]) -> dict[str, Any]:
    color, symbol = MARKS[kind]
    said = [
        f"{s.of.shape.tokens:,} tokens, {s.of.decode_sequences} decodes, context {s.over('context'):,}<br>measured {s.measured:.4g} ms, "
        f"predicted {s.predicted:.4g} ms<br>repeats spread by {percent(s.of.spread)}"
        for s in mine
    ]
    marker = {"color": color, "symbol": symbol, "size": 7, "opacity": 0.8}
    return {
        "type": "scatter", "mode": "markers", "name": kind, "marker": marker, "text": said, "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
