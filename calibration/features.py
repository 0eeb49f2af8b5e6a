"""The physical quantities of a step that its duration is fitted on: from step shapes, or from a run's step log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from serving.plan import StepShape

Column = NDArray[np.float64]


@dataclass(frozen=True)
class Observations:
    """Columns of `(n,)` float64, one row a step.

    tokens: rows of the dense layers. chunks: prefill chunks. pairs: query x context pairs of prefill attention.
    prefill_context: sum over chunks of the cached tokens before them. The rest as in `StepShape`. A chunk of one token
    counts as a decode: engines run it through the same kernel.
    """

    tokens: Column
    chunks: Column
    pairs: Column
    prefill_context: Column
    decode_sequences: Column
    decode_context: Column
    sampled: Column

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Observations:
        return Observations(*(getattr(self, f.name)[rows] for f in fields(self)))

    @property
    def kind(self) -> NDArray[np.str_]:
        """`decode`, `prefill` or `mixed` for each row."""
        return np.where(self.chunks == 0, "decode", np.where(self.decode_sequences == 0, "prefill", "mixed"))


def shapes_to_observations(shapes: Sequence[StepShape]) -> Observations:
    """One row a shape."""
    rows = []
    for s in shapes:
        single = [c for q, c in s.prefill if q == 1]
        longer = [(q, c) for q, c in s.prefill if q > 1]
        rows.append(
            (
                s.tokens,
                len(longer),
                sum(q * c + q * (q + 1) // 2 for q, c in longer),
                sum(c for _, c in longer),
                s.decode_sequences + len(single),
                s.decode_context + sum(single),
                s.sampled if s.prefill else s.decode_sequences,
            )
        )
    return Observations(*np.array(rows, dtype=np.float64).reshape(-1, 7).T)


def steps_to_shapes(steps: Mapping[str, NDArray[np.int64]]) -> list[StepShape]:
    """A shape for each row of a step log (`serving.records.STEP_COLUMNS`) with the same sums.

    A log keeps sums over chunks. With one chunk query and context follow from them exactly; with several, chunks are taken
    as equally long with equal context, so tokens, chunks and pairs are right (pairs to rounding) and only the cached
    context is a guess.
    """
    names = ["prefill_sequences", "prefill_tokens", "prefill_attention"]
    names += ["decode_sequences", "decode_context", "decode_max_context", "sampled", "draft_tokens"]
    rows = zip(*(steps[name].tolist() for name in names), strict=True)
    return [StepShape(_chunks(n, q, a), *decodes) for n, q, a, *decodes in rows]


def steps_to_observations(steps: Mapping[str, NDArray[np.int64]]) -> tuple[Observations, Column]:
    """Features and measured durations in ns of the steps of a log whose chunks are known: those with at most one.

    Empty steps are left out too.
    """
    known = (steps["prefill_sequences"] <= 1) & (steps["prefill_tokens"] + steps["decode_sequences"] > 0)
    kept = {name: column[known] for name, column in steps.items()}
    durations = (kept["end_ns"] - kept["start_ns"]).astype(np.float64)
    return shapes_to_observations(steps_to_shapes(kept)), durations


def _chunks(n: int, tokens: int, pairs: int) -> tuple[tuple[int, int], ...]:
    if n == 0:
        return ()
    if n == 1:
        return ((tokens, (pairs - tokens * (tokens + 1) // 2) // tokens),)
    query, longer = divmod(tokens, n)
    queries = [query + (i < longer) for i in range(n)]
    cached = pairs - sum(q * (q + 1) // 2 for q in queries)
    context = max(0, round(cached / tokens))
    return tuple((q, context) for q in queries)
