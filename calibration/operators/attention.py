"""Attention of a step from grids of equal prompts and equal decodes.

Prefill was measured for whole prompts only. A chunk of q tokens behind c cached ones is what a saturated device needs for a
prompt of c + q less what it needs for one of c, but no less than what a lone prompt of q, or a lone decode with c behind it, takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibration.operators.tables import BEYOND_CACHES, Floats, Grid, digest
from sim.operator_profile import DecodeAttention, PrefillAttention

QUERIES = (1, 16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
CONTEXTS = (0, 256, 512, 1024, 2048, 4096, 6144, 8192, 12288, 16384, 32768)
DECODE_CONTEXTS = (1, 31, 63, 127, 255, 511, 1023, 2047, 4095, 8191, 16383, 32767, 65535, 131071)
_PAIR_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)


SPIKE = 1.15
"""More work that takes less by this factor, in both directions of a grid, tells a bad measurement."""


def without_spikes(grid: Grid) -> tuple[Grid, tuple[int, ...]]:
    """The grid without values that larger sizes in both directions contradict, each told from its neighbours; and the rows
    that were left out."""
    ns = grid.ns.copy()
    rows: list[int] = []
    for i, j in np.argwhere(np.isfinite(grid.ns)).tolist():
        right = grid.ns[i, j + 1] if j + 1 < ns.shape[1] else np.nan
        below = grid.ns[i + 1, j] if i + 1 < ns.shape[0] else np.nan
        more = float(np.maximum(right, below))
        if not more * SPIKE < grid.ns[i, j]:  # also where either was not measured
            continue
        ns[i, j] = min(
            right if not j else np.interp(grid.across[j], grid.across[[j - 1, j + 1]], [ns[i, j - 1], right]), below
        )
        rows.append(int(grid.rows[i, j]))
    return Grid(grid.origin, grid.down, grid.across, ns, grid.rows), tuple(rows)


@dataclass(frozen=True)
class Fitted:
    """moved: by how much the grid was raised so that more work never costs less: the mean and the largest share.
    limit: largest sizes measured, (down, across). reach: batch x context beyond which nothing was measured (decode)."""

    rows: int
    hash: str
    moved_mean: float
    moved_most: float
    limit: tuple[int, int]
    reach: int = 0


def pairs(query: Floats, context: Floats | float = 0.0) -> Floats:
    """(query, key) pairs of a causal chunk."""
    return query * context + query * (query + 1.0) / 2.0


@dataclass(frozen=True)
class Chunks:
    """Times of one layer's chunks. lengths: `(L,)`; lone: a prompt by itself; share: one of many, at the device's best."""

    lengths: Floats
    lone: Floats
    share: Floats
    pair_ns: float
    decode_contexts: Floats
    decode_lone: Floats

    @staticmethod
    def of(prefill: Grid, decode: Grid) -> Chunks:
        lengths = prefill.across.astype(np.float64)
        each = prefill.ns / prefill.down.astype(np.float64)[:, None]
        lone = np.maximum.accumulate(prefill.ns[0])
        share = np.maximum.accumulate(np.nanmin(each, axis=0))
        long = lengths >= min(1024.0, float(lengths[-2]))
        rates = np.diff(share[long]) / np.diff(pairs(lengths[long]))
        known = np.isfinite(decode.ns[0])
        return Chunks(
            lengths, lone, share, float(max(rates.min(), 0.0)),
            decode.across[known].astype(np.float64), np.maximum.accumulate(decode.ns[0][known]),
        )  # fmt: skip

    def saturated(self, length: Floats) -> Floats:
        """Of one prompt among many: pairs at the best rate, and the rest on straight lines; the last slope beyond."""
        rest = np.maximum.accumulate(self.share - self.pair_ns * pairs(self.lengths))
        points, values = np.concatenate([[0.0], self.lengths]), np.concatenate([[0.0], np.maximum(rest, 0.0)])
        slope = (values[-1] - values[-2]) / (points[-1] - points[-2])
        over = np.maximum(0.0, length - points[-1])
        total = np.interp(length, points, values) + over * slope + self.pair_ns * pairs(length)
        return np.asarray(total, dtype=np.float64)

    def alone(self, query: Floats, context: Floats) -> Floats:
        """The least that a chunk takes: a lone prompt of as many tokens, a lone decode behind as many."""
        slope = (self.lone[-1] - self.lone[-2]) / (self.lengths[-1] - self.lengths[-2])
        prompt = np.interp(query, self.lengths, self.lone) + np.maximum(0.0, query - self.lengths[-1]) * slope
        points, ns = self.decode_contexts, self.decode_lone
        tail = (ns[-1] - ns[-2]) / (points[-1] - points[-2])
        decode = np.interp(context, points, ns) + np.maximum(0.0, context - points[-1]) * tail
        return np.asarray(np.maximum(prompt, np.where(context > 0, decode, 0.0)), dtype=np.float64)

    def chunk(self, query: Floats, context: Floats) -> Floats:
        return np.maximum(self.saturated(context + query) - self.saturated(context), self.alone(query, context))


def prefill_attention(prefill: Grid, decode: Grid, layers: int) -> tuple[PrefillAttention, Fitted]:
    """All layers' prefill attention of a step, by chunks."""
    times = Chunks.of(prefill, decode)
    query = np.array(QUERIES, dtype=np.float64)[:, None]
    context = np.array(CONTEXTS, dtype=np.float64)[None, :]
    wanted = times.chunk(query + 0 * context, context + 0 * query)
    # The more curvature the pairs take, the better lines between the points fit; the less, the less must a grid be raised that
    # has to grow. The share that leaves the least error at the points is taken.
    best: tuple[float, float, Floats] | None = None
    for share in _PAIR_SHARES:
        pair = share * times.pair_ns
        rest = _growing(np.maximum(wanted - pair * pairs(query, context), 0.0))
        error = float(np.mean(np.abs(rest + pair * pairs(query, context) - wanted) / wanted)) + _between_error(
            times, pair, rest
        )
        if best is None or error < best[0] - 1e-4:
            best = (error, pair, rest)
    assert best is not None
    _, pair, rest = best
    moved = (rest + pair * pairs(query, context) - wanted) / wanted
    scale = float(layers)
    ns = np.round(rest * scale)
    shared = min(_shared(prefill) * scale, float(ns.min()))
    fitted = PrefillAttention(
        pair_ns=float(f"{pair * scale:.6g}"),
        queries=QUERIES,
        contexts=CONTEXTS,
        ns=_rows(ns),
        shared_ns=float(int(shared)),
    )
    used = prefill.ns[np.isfinite(prefill.ns)]
    about = Fitted(len(used), digest(used), float(moved.mean()), float(moved.max()), _limits(prefill))
    return fitted, about


def _between_error(times: Chunks, pair: float, rest: Floats) -> float:
    """Mean error half-way between the points, in both directions."""
    q, c = np.array(QUERIES, dtype=np.float64), np.array(CONTEXTS, dtype=np.float64)
    query, context = (q[:-1] + q[1:])[:, None] / 2, (c[:-1] + c[1:])[None, :] / 2
    line = (rest[:-1, :-1] + rest[1:, :-1] + rest[:-1, 1:] + rest[1:, 1:]) / 4 + pair * pairs(query, context)
    wanted = times.chunk(query + 0 * context, context + 0 * query)
    return float(np.mean(np.abs(line - wanted) / wanted))


def _shared(prefill: Grid) -> float:
    """What each chunk but the first costs less than alone: the median over equal chunks that were measured together."""
    batch = prefill.down.astype(np.float64)[1:, None]
    saved = (batch * prefill.ns[0][None] - prefill.ns[1:]) / (batch - 1.0)
    saved = saved[:, prefill.across >= 16]
    return max(0.0, float(np.nanmedian(saved))) if np.isfinite(saved).any() else 0.0


def decode_attention(decode: Grid, layers: int, token_bytes: float) -> tuple[DecodeAttention, Fitted]:
    """All layers' decode attention. Where a batch with such contexts did not fit the machine, the last slope goes on.

    token_bytes: keys and values of one token in one layer. No less than reading them takes, at the best rate that was measured
    where they are larger than any cache.
    """
    filled = fill_by_slope(decode)
    size = np.outer(decode.down, decode.across + 1.0) * token_bytes
    large = (size >= BEYOND_CACHES) & np.isfinite(decode.ns)
    read = float((decode.ns / size)[large].min()) if large.any() else 0.0
    grown = _growing(np.maximum(filled, size * read))
    moved = grown / filled - 1.0
    contexts = [c for c in DECODE_CONTEXTS if decode.across[0] <= c <= decode.across[-1]]
    columns = np.array([np.interp(contexts, decode.across, row) for row in grown]) * layers
    ns = _growing(np.round(columns))
    used = decode.ns[np.isfinite(decode.ns)]
    known = np.isfinite(decode.ns) * np.outer(decode.down, decode.across)
    reach = int(known[:, -3:].max(initial=0))
    fitted = DecodeAttention(
        sequences=tuple(decode.down.tolist()),
        contexts=tuple(contexts),
        ns=_rows(ns),
        reach=None if known.all() or not reach else reach,
    )
    about = Fitted(
        len(used),
        digest(used),
        float(moved.mean()),
        float(moved.max()),
        _limits(decode),
        reach,
    )
    return fitted, about


def fill_by_slope(grid: Grid) -> Floats:
    """The grid with its unmeasured corner. Each row goes on with its last slope, or with that of the row before in proportion
    to the batch where that is more: reading KV takes a time for each token, whoever's it is."""
    ns, across = grid.ns.copy(), grid.across.astype(np.float64)
    for i, row in enumerate(ns):
        known = np.flatnonzero(np.isfinite(row))
        ratio = float(grid.down[i]) / float(grid.down[i - 1]) if i else 1.0
        if not len(known):
            row[:] = ns[i - 1] * ratio
            continue
        last = int(known[-1])
        own = (row[last] - row[known[-2]]) / (across[last] - across[known[-2]]) if len(known) > 1 else 0.0
        for j in range(last + 1, len(across)):
            before = ratio * (ns[i - 1, j] - ns[i - 1, j - 1]) if i else 0.0
            row[j] = row[j - 1] + max(own * (across[j] - across[j - 1]), before, 0.0)
    return ns


def _growing(ns: Floats) -> Floats:
    return np.maximum.accumulate(np.maximum.accumulate(ns, axis=0), axis=1)


def _limits(grid: Grid) -> tuple[int, int]:
    known = np.isfinite(grid.ns)
    return int(grid.down[known.any(axis=1)][-1]), int(grid.across[known.any(axis=0)][-1])


def _rows(ns: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in ns.tolist())
