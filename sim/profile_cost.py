"""Step costs from a fitted profile."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from serving.plan import StepShape
from sim.domain import Outside, in_words, outside
from sim.profile import Profile
from sim.tabled_cost import TabledCost


class ProfileCost(TabledCost):
    """The durations that a profile predicts: its dense table, interpolated in tokens, and its coefficients.

    Past the last knot the dense table grows with the slope of its upper half, so that noise in the last two knots does
    not decide everything beyond them; `extrapolation` says when that happens.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        c = profile.coefficients
        super().__init__(profile.name, c.decode_sequence, c.decode_context)
        self._chunk_ns, self._pair_ns, self._prefill_context_ns = c.chunk, c.pair, c.prefill_context

    def _token_table(self, tokens: int) -> NDArray[np.float64]:
        return dense_ns(self.profile.dense, np.arange(tokens, dtype=np.float64))

    def _head_table(self, rows: int) -> NDArray[np.float64]:
        c = self.profile.coefficients
        at = np.arange(rows, dtype=np.float64)
        return np.minimum(at, 1.0) * c.head + at * c.head_row

    def _chunk(self, query: int, context: int) -> float:
        pairs = query * context + query * (query + 1) // 2
        ns = self._chunk_ns + pairs * self._pair_ns + context * self._prefill_context_ns
        if query > 1:
            return ns
        # Engines run a chunk of one token through the decode kernel. Never dearer than two tokens, which are a chunk.
        return min(ns, self._sequence_ns + context * self._context_ns)

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Nanoseconds by term."""
        rows = shape.sampled if shape.prefill else shape.decode_sequences
        longer = [(q, c) for q, c in shape.prefill if q > 1]
        return {
            "dense and fixed": self._token_ns(shape.tokens),
            "prefill chunks": len(longer) * self._chunk_ns,
            "prefill attention": StepShape(tuple(longer)).prefill_attention * self._pair_ns,
            "prefill context": sum(c for _, c in longer) * self._prefill_context_ns,
            "one-token chunks": sum(self._chunk(1, c) for q, c in shape.prefill if q == 1),
            "decode sequences": shape.decode_sequences * self._sequence_ns,
            "decode attention": shape.decode_context * self._context_ns,
            "output head": self._head_ns(rows),
        }

    def extrapolation(self, shape: StepShape) -> str | None:
        """Every part of the shape that lies outside what was measured, and by how much."""
        return in_words(self.outside(shape))

    def outside(self, shape: StepShape) -> list[Outside]:
        """The same as data."""
        return outside(shape, self.profile.domain)


def dense_ns(knots: tuple[tuple[int, float], ...], tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """Dense table at `tokens`: linear between knots, flat below the first, the upper half's slope above the last."""
    at = np.array([t for t, _ in knots], dtype=np.float64)
    ns = np.array([v for _, v in knots], dtype=np.float64)
    below = at[:-1] <= at[-1] / 2
    lower = int(np.flatnonzero(below)[-1]) if below.any() else 0
    run = at[-1] - at[lower]
    slope = (ns[-1] - ns[lower]) / run if run > 0 else ns[-1] / max(at[-1], 1.0)
    inside = np.interp(tokens, at, ns)
    return np.asarray(np.maximum.accumulate(inside + np.maximum(tokens - at[-1], 0.0) * slope))
