"""Whose time a step is: every step is split by its cost terms, and each term among those who had a row in it.

The cost model says of each step what it is made of (`Shares`):

- weights and fixed host time, by sequence: each row of the step pays the same, a long prompt no more than a decode;
- dense work, by token: what the tokens beyond the first add to it;
- the output head, by sampled row;
- attention, by context: of a decode by the tokens that it attends to, of a prompt chunk its own.

The parts are scaled to what the step really took, so that what a model leaves out (noise, drafting, copies) is spread like the rest.
What requests are charged is whole nanoseconds and sums exactly to the time of all steps with a row (law 13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.records import Records
from serving.rows import Rows, rows_of

Column = NDArray[np.int64]
Floats = NDArray[np.float64]


class Shares(NamedTuple):
    """What steps are made of, nanoseconds.

    fixed: weights and the host's time of a step, shared by all its rows; `(steps,)` like the next four.
    tokens: dense work, shared by tokens. head: by sampled rows. decodes: by decodes. context: decode attention, by contexts.
    chunks: of each prompt chunk its own: attention and whatever it takes to schedule it; `(chunks,)`.
    """

    fixed: Floats
    tokens: Floats
    head: Floats
    decodes: Floats
    context: Floats
    chunks: Floats


class Splits(Protocol):
    """What a cost model says of steps."""

    def shares(self, steps: Mapping[str, Column], query: Column, context: Column) -> Shares:
        """Of steps with `prefill_sequences`, `prefill_tokens`, `decode_sequences`, `decode_context`, `decode_max_context` and
        `sampled`, `(steps,)` each, and of chunks of `query` tokens behind `context`, `(chunks,)` each."""


class ByToken:
    """For steps whose costs nobody knows: a token costs what any other does."""

    def shares(self, steps: Mapping[str, Column], query: Column, context: Column) -> Shares:
        none = np.zeros(len(steps["prefill_tokens"]))
        tokens = (steps["prefill_tokens"] + steps["decode_sequences"]).astype(np.float64)
        return Shares(none, tokens, none, none, none, np.zeros(len(query)))


@dataclass(frozen=True)
class Charges:
    """Device time of each request, whole nanoseconds, int64 `(n,)` each; together exactly the time of all steps with a row.

    input_ns: what it took to compute its prompt until its first token, but for `cached_ns`, attention to what the prefix cache held.
    output_ns: everything after its first token, recomputation after a preemption included.
    marginal_ns: what of them would not have been spent without it: not weights and host time that others needed anyway;
        float64, input and output, `(2, n)`.
    busy_ns: of each replica, `(replicas,)`: what its requests are charged.
    """

    input_ns: Column
    cached_ns: Column
    output_ns: Column
    marginal_ns: Floats
    busy_ns: Column

    @property
    def total_ns(self) -> Column:
        return self.input_ns + self.cached_ns + self.output_ns


def charge(records: Records, splits: Sequence[Splits | None]) -> Charges | None:
    """Splits the time of every step among its requests.

    splits: of each replica its cost model, None where nobody knows any.

    Returns:
        None where it is not known who was in which step.
    """
    rows = rows_of(records)
    if rows is None:
        return None
    steps, n = records.steps, len(records.requests["status"])
    units = _Units(records, rows, splits)
    c, s = rows.chunks, rows.stretches
    own, fixed = units.of_chunks()
    first = records.requests["first_token_ns"][c["request"]]
    prompt = (first < 0) | (steps["end_ns"][c["step"]] <= first)
    held = units.cached(own)
    along, along_fixed = units.of_stretches()

    def by_request(values: Floats, kept: NDArray[np.bool_]) -> Floats:
        return np.bincount(c["request"][kept], values[kept], n).astype(np.float64)

    decoding = np.bincount(s["request"], along, n)
    exact = np.stack([by_request(own - held, prompt), by_request(held, prompt), by_request(own, ~prompt) + decoding])
    shared = np.stack(
        [by_request(fixed, prompt), by_request(fixed, ~prompt) + np.bincount(s["request"], along_fixed, n)]
    )
    charged = np.zeros((3, n), dtype=np.int64)
    busy = np.zeros(len(splits), dtype=np.int64)
    occupied = steps["prefill_sequences"] + steps["decode_sequences"] > 0
    home = np.full(n, -1)
    home[c["request"]] = steps["replica"][c["step"]]
    for replica in range(len(splits)):
        mine = occupied & (steps["replica"] == replica)
        busy[replica] = (steps["end_ns"] - steps["start_ns"])[mine].sum()
        there = home == replica
        charged[:, there] = _whole(exact[:, there], int(busy[replica]))
    marginal = np.maximum(exact[[0, 2]] - shared, 0.0)
    return Charges(charged[0], charged[1], charged[2], marginal, busy)


def _whole(values: Floats, total: int) -> Column:
    """Whole numbers next to `values` that sum to `total` (largest remainders)."""
    low = np.floor(values).astype(np.int64)
    missing = total - int(low.sum())
    flat = low.ravel()
    order = np.argsort((low - values).ravel(), kind="stable")  # largest remainders first
    while missing and flat.size:
        some = order[: min(abs(missing), len(order))] if missing > 0 else np.flatnonzero(flat > 0)[::-1][:-missing]
        if not len(some):
            break
        flat[some] += np.sign(missing)
        missing -= int(np.sign(missing)) * len(some)
    return flat.reshape(values.shape)


class _Units:
    """Prices of steps by what they are shared by, in nanoseconds of the step as it was."""

    def __init__(self, records: Records, rows: Rows, splits: Sequence[Splits | None]) -> None:
        self.records = records
        self.rows = rows
        steps, c = records.steps, rows.chunks
        parts = _shares(records, rows, splits)
        size = len(steps["step"])
        decodes = steps["decode_sequences"]
        prompts = c["decodes"] == 0
        self.chunk_ns = parts.chunks
        self.sampling = np.where(c["samples"] > 0, np.where(_verifies(records, rows), c["tokens"], 1), 0)
        chunk_sum = np.bincount(c["step"][prompts], parts.chunks[prompts], size)
        heads = decodes + np.bincount(c["step"][prompts], self.sampling[prompts], size)
        whole = parts.fixed + parts.tokens + parts.head + parts.decodes + parts.context + chunk_sum
        taken = (steps["end_ns"] - steps["start_ns"]).astype(np.float64)
        self.scale = scale = np.divide(taken, whole, out=np.zeros(size), where=whole > 0)

        def each(part: Floats, among: Column) -> Floats:
            return np.divide(scale * part, among, out=np.zeros(size), where=among > 0)

        present = steps["prefill_sequences"] + decodes
        self.fixed = each(parts.fixed, present)
        self.token = each(parts.tokens, steps["prefill_tokens"] + decodes)
        self.head = each(parts.head, heads)
        self.decode = each(parts.decodes, decodes)
        self.context = each(parts.context, steps["decode_context"] + decodes)
        self.shared = np.where(present > 1, self.fixed, 0.0)
        # A step in which nobody decodes is none of theirs.
        self.a = np.where(decodes > 0, self.fixed + self.token + self.head + self.decode + self.context, 0.0)
        self.b = np.where(decodes > 0, self.context, 0.0)

    def of_chunks(self) -> tuple[Floats, Floats]:
        """What each logged row pays, and how much of that is weights and host time which others needed too; `(rows,)`."""
        c = self.rows.chunks
        at = c["step"]
        decodes = self.a[at] + self.b[at] * c["context"]
        prompts = self.fixed[at] + self.token[at] * c["tokens"] + self.head[at] * self.sampling
        prompts = prompts + self.scale[at] * self.chunk_ns
        return np.where(c["decodes"] > 0, decodes, prompts), self.shared[at]

    def of_stretches(self) -> tuple[Floats, Floats]:
        """The same of each stretch of decodes."""
        s, decoded = self.rows.stretches, self.rows.decoded
        first, behind = s["first"], s["last"] + 1
        there = np.diff(decoded) > 0

        def over(values: Floats) -> Floats:
            sums = np.concatenate([[0.0], np.cumsum(values)])
            return np.asarray(sums[behind] - sums[first])

        per_context = over(self.b)
        position = over(self.b * decoded[:-1]) - decoded[first] * per_context  # tokens beyond the context at its start
        return over(self.a) + s["context"] * per_context + position, over(np.where(there, self.shared, 0.0))

    def cached(self, own: Floats) -> Floats:
        """Of what each logged row pays, attention to tokens that the prefix cache held."""
        c, r = self.rows.chunks, self.records.requests
        held = np.minimum(c["context"], np.maximum(r["cached_tokens"][c["request"]], 0))
        pairs = c["tokens"] * c["context"] + c["tokens"] * (c["tokens"] + 1) // 2
        share = c["tokens"] * held / np.maximum(pairs, 1)
        return np.asarray(
            np.where(c["decodes"] > 0, 0.0, np.minimum(self.scale[c["step"]] * self.chunk_ns * share, own))
        )


def _verifies(records: Records, rows: Rows) -> NDArray[np.bool_]:
    """Which logged rows verify drafts, and so sample for each of their tokens."""
    c = rows.chunks
    speculating = np.isin(records.steps["replica"][c["step"]], np.unique(records.drafts[:, 0]))
    behind = c["context"] >= records.requests["prompt_tokens"][c["request"]]
    return np.asarray(speculating & behind & (c["tokens"] > 1) & (c["samples"] > 0))


def _shares(records: Records, rows: Rows, splits: Sequence[Splits | None]) -> Shares:
    """Of all steps, each by the cost model of its replica. `chunks` are of all logged rows, 0 for decodes."""
    steps, c = records.steps, rows.chunks
    size = len(steps["step"])
    fixed, tokens, head, decodes, context = np.zeros((5, size))
    found = Shares(fixed, tokens, head, decodes, context, np.zeros(len(c["step"])))
    by_token = ByToken()
    models: dict[int, tuple[Splits, list[int]]] = {}
    for replica, split in enumerate(splits):
        model = split or by_token
        models.setdefault(id(model), (model, []))[1].append(replica)
    for model, replicas in models.values():
        of_steps = np.flatnonzero(np.isin(steps["replica"], replicas))
        of_chunks = np.flatnonzero((c["decodes"] == 0) & np.isin(steps["replica"][c["step"]], replicas))
        if not len(of_steps):
            continue
        columns = {name: column[of_steps] for name, column in steps.items()}
        part = model.shares(columns, c["tokens"][of_chunks], c["context"][of_chunks])
        for whole, some in zip(found[:5], part[:5], strict=True):
            whole[of_steps] = some
        found.chunks[of_chunks] = part.chunks
    return found
