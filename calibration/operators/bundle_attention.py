"""Attention of a kernel bundle: one table of prompts and decodes together, taken apart into what each costs alone and the rest."""

from __future__ import annotations

import numpy as np

from calibration.operators.grids import leave_one_out, monotone, to_grid
from calibration.operators.number_table import NumberTable
from calibration.operators.tables import Floats
from scenarios.errors import InputError
from sim.operator_profile import DecodeAttention, MixedAttention, PrefillAttention
from sim.profile_parts import Errors

Parts = tuple[DecodeAttention, PrefillAttention, MixedAttention | None, dict[str, Errors]]
MOST_CONTEXTS = 32
_HALVINGS = 2
"""Points put between two measured chunk lengths where a parabola bends: 2 ** this - 1."""


def attention_parts(table: NumberTable, layers: int) -> Parts:
    """Attention of all layers from microseconds of one, and how well each point follows from its neighbours.

    Raises:
        InputError: no decodes, or no prompts alone; a hole in one of the grids.
    """
    chunk, decodes = table.numbers["prefill_chunk"], table.numbers["n_decode"]
    decode = _rows(table, (chunk == 0) & (decodes > 0), "prefill_chunk 0: decodes alone")
    prefill = _rows(table, (chunk > 0) & (decodes == 0), "n_decode 0: prompts alone")
    both = np.flatnonzero((chunk > 0) & (decodes > 0))
    (n, k), alone = to_grid(decode, ("n_decode", "kv_decode"), "time_us")
    (q, c), prompts = to_grid(prefill, ("prefill_chunk", "kv_prefill"), "time_us")
    errors = {
        "decode_attention": Errors.of(leave_one_out(np.array(k, dtype=float), alone)),
        "prefill_attention": Errors.of(leave_one_out(np.array(c, dtype=float), prompts)),
    }
    us, mixed_axes = None, None
    if len(both):
        mixed_axes, us = to_grid(table.take(both), ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode"), "time_us")
        mq, mc, mn, mk = mixed_axes
        if mq != q or mc != c or mk != k or mn != n[: len(mn)]:
            raise InputError(
                f"{table.path}: rows with prompts and decodes lie on other points than rows with one of them alone; "
                "measure all of them on one grid"
            )
        alone, prompts, us = _together(alone, prompts, us)
    else:
        alone, prompts = monotone(alone), monotone(prompts)
    scale = 1e3 * layers
    queries, fine = bent(np.array(q, dtype=float), np.array(c, dtype=float), prompts)
    mixed = None
    if us is not None and mixed_axes is not None:
        beyond = us - prompts[:, :, None, None] - alone[None, None, : us.shape[2], :]
        mixed = MixedAttention(
            queries=q,
            contexts=c,
            sequences=mixed_axes[2],
            decode_contexts=k,
            ns=tuple((beyond * scale).round(1).ravel().tolist()),
        )
    return (
        DecodeAttention(sequences=n, contexts=k, ns=nested(alone * scale)),
        PrefillAttention(
            pair_ns=0.0,
            queries=tuple(round(x) for x in queries.tolist()),
            contexts=c,
            ns=nested(fine * scale),
            shared_ns=float(np.floor(prompts.min() * scale)),
        ),
        mixed,
        errors,
    )


def over_contexts(table: NumberTable) -> NumberTable:
    """Rows over the cached context of a chunk, from rows over how far its queries look back on average (`prefill_key`).

    One chunk of q tokens behind c cached ones looks back c + q / 2; rows that look back less are of several chunks at once and
    are left out. Contexts in between lie on straight lines; the largest is the one that every chunk length has.
    """
    chunk, key = table.numbers["prefill_chunk"], table.numbers["prefill_key"]
    longest = float(chunk.max(initial=0.0))
    alone = np.flatnonzero(chunk == 0)
    whole = table.take(alone)
    columns = {name: [whole.numbers[name]] for name in ("prefill_chunk", "n_decode", "kv_decode", "time_us")}
    contexts, lines = [np.zeros(len(alone))], list(whole.lines)
    wanted = _contexts(np.unique(key[chunk > 0]), longest)
    for q, n, k in sorted(
        {
            (a, b, c)
            for a, b, c in zip(
                chunk.tolist(), table.numbers["n_decode"].tolist(), table.numbers["kv_decode"].tolist(), strict=True
            )
            if a > 0
        }
    ):
        rows = np.flatnonzero((chunk == q) & (table.numbers["n_decode"] == n) & (table.numbers["kv_decode"] == k))
        rows = rows[np.argsort(key[rows])]
        columns["time_us"].append(np.interp(wanted + q / 2, key[rows], table.numbers["time_us"][rows]))
        for name, value in (("prefill_chunk", q), ("n_decode", n), ("kv_decode", k)):
            columns[name].append(np.full(len(wanted), value))
        contexts.append(wanted)
        lines += [table.lines[int(rows[0])]] * len(wanted)
    numbers = {name: np.concatenate(parts) for name, parts in columns.items()}
    return NumberTable(table.path, numbers | {"kv_prefill": np.concatenate(contexts)}, {}, lines)


def _contexts(keys: Floats, longest: float) -> Floats:
    """Contexts at which every chunk length can be read off, at most about as many as a doubling grid has."""
    reachable = np.unique(np.floor(keys[keys + longest / 2 <= keys.max(initial=0.0)]))
    if len(reachable) > MOST_CONTEXTS:
        spread = np.geomspace(max(1.0, reachable[0]), reachable[-1], MOST_CONTEXTS)
        reachable = np.unique(reachable[np.searchsorted(reachable, spread).clip(max=len(reachable) - 1)])
    found: Floats = np.unique(np.concatenate([[0.0], reachable]))
    return found


def _rows(table: NumberTable, which: np.ndarray[tuple[int], np.dtype[np.bool_]], what: str) -> NumberTable:
    rows = np.flatnonzero(which)
    if not len(rows):
        raise InputError(f"{table.path}: not one row with {what}; was the measurement cut off?")
    return table.take(rows)


def _together(alone: Floats, prompts: Floats, us: Floats) -> tuple[Floats, Floats, Floats]:
    """All three made to grow with their work, each plane beside the others: no prompt and no decode are planes of the whole."""
    whole = np.zeros((us.shape[0] + 1, us.shape[1], us.shape[2] + 1, us.shape[3]))
    whole[1:, :, 1:, :] = us
    whole[0, :, 1:, :] = alone[None, : us.shape[2], :]
    whole[1:, :, 0, :] = prompts[:, :, None]
    whole = monotone(whole)
    shared = whole[0, 0, 1:, :]
    rest = np.maximum.accumulate(np.concatenate([shared[-1:], monotone(alone)[us.shape[2] :]]), axis=0)[1:]
    return np.concatenate([shared, rest]), whole[1:, :, 0, 0], whole[1:, :, 1:, :]


def bent(q: Floats, c: Floats, us: Floats) -> tuple[Floats, Floats]:
    """More chunk lengths: between two measured ones the causal half of a chunk is a parabola, not its chord.

    A query against one more cached token costs what the longer chunk's own slope over contexts says, at its steadiest.
    """
    slopes = np.diff(us, axis=1) / np.diff(c)
    queries, rows = [q[0]], [us[0]]
    for i in range(1, len(q)):
        pair = float(np.median(slopes[i][-3:])) / q[i]
        parts = 2**_HALVINGS if q[i] - q[i - 1] >= 2**_HALVINGS else 1
        for step in range(1, parts):
            share = step / parts
            at = q[i - 1] + share * (q[i] - q[i - 1])
            below = pair / 2.0 * (at - q[i - 1]) * (q[i] - at)
            chord = us[i - 1] + share * (us[i] - us[i - 1])
            # Never below the shorter chunk, nor below half of the chord's rise: the small end is not a parabola.
            rows.append(np.maximum(chord - below, us[i - 1] + 0.5 * share * (us[i] - us[i - 1])))
            queries.append(at)
        rows.append(us[i])
        queries.append(q[i])
    return np.array(queries), monotone(np.array(rows))


def nested(grid: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in grid.round(1).tolist())
