"""What steps cost by a profile: time against tokens, and attention against context. Pure functions to Plotly dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.profile import Profile
from sim.profiles import AnyProfile
from studies.figures.alt_text import counted
from studies.figures.notice import notice
from studies.figures.series import numbers
from studies.figures.style import DASHES, PALETTE, Figure, axis, layout
from studies.figures.ticks import log_ticks
from studies.reports.tables import joined, number

LINES = 5
"""Of a family of curves, so that they are told apart."""
MARGIN = {"l": 8, "r": 12, "t": 52, "b": 8}


def over_tokens(profile: AnyProfile) -> Figure:
    """Time of each term that depends on the tokens of a step; the points are those at which it was measured or composed."""
    if isinstance(profile, Profile):
        at, ns = zip(*profile.dense, strict=True)
        curves = {"dense layers and fixed costs": (at, ns)}
    else:
        curves = {name: (curve.at, curve.ns) for name, curve in profile.tokens.items()}
        curves["output head (over sampled rows)"] = (profile.head.at, profile.head.ns)
        curves = {name: curve for name, curve in curves.items() if max(curve[1]) > 0}
    data = []
    for k, (name, (at, ns)) in enumerate(curves.items()):
        data += _line(name, np.array(at), np.array(ns), k)
    largest = {name: max(ns) / 1e6 for name, (_, ns) in curves.items()}
    alt = f"Time against tokens of {joined(list(curves))}; at the most tokens {', '.join(f'{number(v)} ms' for v in largest.values())}."
    return _drawn(data, "Tokens of the step", alt)


def decode_attention(profile: AnyProfile) -> Figure:
    """All layers' attention of a step's decodes over the mean of their contexts, a line a number of decodes."""
    if isinstance(profile, Profile):
        return notice(
            "A fit to whole steps holds one number for it: "
            f"{number(profile.coefficients.decode_context / 1e3)} µs for each token of context, whatever the number of decodes."
        )
    found = profile.decode_attention
    rows = _some(found.sequences)
    data = []
    for k, i in enumerate(rows):
        data += _line(counted(found.sequences[i], "decode"), np.array(found.contexts), np.array(found.ns[i]), k)
    alt = f"Attention of decodes over their mean context, for {joined([f'{found.sequences[i]:,}' for i in rows])} decodes at once."
    return _drawn(data, "Mean context of a decode (tokens)", alt)


def prefill_attention(profile: AnyProfile) -> Figure:
    """All layers' attention of one prefill chunk over its tokens, a line a number of cached tokens before it."""
    if isinstance(profile, Profile):
        c = profile.coefficients
        return notice(
            f"A fit to whole steps holds numbers for it: {number(c.chunk / 1e6)} ms for a chunk, {number(c.pair)} ns for each (query, key) "
            f"pair, {number(c.prefill_context / 1e3)} µs for each cached token."
        )
    found = profile.prefill_attention
    queries = np.array(found.queries, dtype=np.float64)
    columns = _some(found.contexts)
    data = []
    for k, j in enumerate(columns):
        context = found.contexts[j]
        pairs = queries * context + queries * (queries + 1) / 2
        ns = np.array([row[j] for row in found.ns]) + pairs * found.pair_ns
        data += _line(f"{context:,} cached", np.array(found.queries), ns, k)
    alt = f"Attention of a prefill chunk over its tokens, behind {joined([f'{found.contexts[j]:,}' for j in columns])} cached tokens."
    return _drawn(data, "Tokens of the chunk", alt)


def _some(points: Sequence[int]) -> list[int]:
    """Indices of a few points, ends kept, evenly by rank."""
    return sorted({round(i) for i in np.linspace(0, len(points) - 1, min(LINES, len(points)))})


def _line(name: str, at: NDArray[Any], ns: NDArray[Any], k: int) -> list[dict[str, Any]]:
    """A curve, straight between its points where the axes are linear, and the points."""
    first = max(1.0, float(at[0]))
    x = np.unique(np.concatenate([np.geomspace(first, max(float(at[-1]), first), 60).round(), at[at >= first]]))
    y = np.interp(x, at, ns)
    color, group = PALETTE[k % 6], {"legendgroup": name, "name": name}
    seen = (at >= first) & (ns > 0)
    line = {"color": color, "width": 1.5, "dash": DASHES[k % 6]}
    return [
        group
        | {
            "type": "scatter", "mode": "lines", "x": numbers(x[y > 0]), "y": numbers(y[y > 0] / 1e6), "line": line, "hoverinfo": "skip",
        },
        group
        | {
            "type": "scatter", "mode": "markers", "x": numbers(at[seen]), "y": numbers(ns[seen] / 1e6), "showlegend": False,
            "marker": {"color": color, "size": 4}, "hovertemplate": f"%{{x:,}}: %{{y:.4g}} ms<extra>{name}</extra>",
        },
    ]  # fmt: skip


def _drawn(data: list[dict[str, Any]], along: str, alt: str) -> Figure:
    scales = []
    for name in ("x", "y"):
        values = [value for trace in data for value in trace[name]]
        scales.append(log_ticks(min(values) / 1.3, max(values) * 1.3))
    return {
        "data": data,
        "layout": layout(
            380, alt, xaxis=axis(along, **scales[0]), yaxis=axis("Time a step (ms)", **scales[1]), margin=MARGIN, showlegend=True,
        ),
    }  # fmt: skip
