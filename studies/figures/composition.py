"""What steps are made of, and what they take."""

from __future__ import annotations

import numpy as np

from serving.records import Records
from studies.figures.alt_text import counted, number
from studies.figures.series import Array, line, numbers
from studies.figures.style import BLUE, INK, ORANGE, PINK, Figure, axis, layout


def batch_composition(records: Records, bins: int = 200) -> Figure:
    """Tokens of a mean step, of prompts and of decodes, and the duration of steps, over time."""
    steps = records.steps
    n = len(steps["end_ns"])
    empty: Array = np.empty(0)
    at, prefill, decode, mean, most = empty, empty, empty, empty, empty
    alt = "Tokens and duration of steps over time: no step was run."
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
        slow = int(taken.argmax())
        alt = (
            f"{counted(n, 'step')} over {number(float(start.max()))} s: on average {number(of_prompts.mean())} tokens of prompts and "
            f"{number(of_answers.mean())} of decodes a step. A step takes {number(taken.mean())} ms on average, "
            f"the longest {number(taken[slow])} ms at {number(start[slow])} s."
        )
    area = {"type": "scatter", "mode": "lines", "stackgroup": "tokens", "x": numbers(at), "yaxis": "y"}
    return {
        "data": [
            area | {"name": "decode", "y": numbers(decode), "line": {"width": 0.5, "color": BLUE}},
            area | {"name": "prefill", "y": numbers(prefill), "line": {"width": 0.5, "color": ORANGE}},
            line(at, mean, "mean step", INK, "y2", shape="linear"),
            line(at, most, "longest step", PINK, "y2", dash="dot", shape="linear"),
        ],
        "layout": layout(
            380,
            alt,
            xaxis=axis("Time (s)", anchor="y2"),
            yaxis=axis("Tokens a step", domain=[0.46, 1], rangemode="tozero"),
            yaxis2=axis("Step time (ms)", domain=[0, 0.38], rangemode="tozero"),
        ),
    }
