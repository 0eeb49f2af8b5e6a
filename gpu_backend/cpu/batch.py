"""Input preparation: a plan's rows as one flat batch of arrays, the form in which the model takes a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu_backend.tokens import Text
from serving.plan import Scheduled

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Chunk:
    """Several tokens of one sequence: `tokens` rows of the batch from `start`, after `context` tokens whose KV exists.

    blocks: ids of the blocks that hold its first `context + tokens` tokens.
    """

    start: int
    tokens: int
    context: int
    blocks: Ints


@dataclass(frozen=True)
class Batch:
    """T tokens: first one of each decoding sequence, then the chunks, each in plan order.

    token_ids, positions, blocks, offsets: `(T,)`; the KV of token t goes to slot `offsets[t]` of block `blocks[t]`.
    decodes: sequences that compute a single token; their block ids are `tables[starts[s]:]`, `lengths[s]` counts the new one.
    sampled: rows that get a token, in plan order: the last of each request that samples, and with drafts the ones that these
    stand on. samplers: who samples, and where the first of its rows is in `sampled`.
    """

    token_ids: Ints
    positions: Ints
    blocks: Ints
    offsets: Ints
    decodes: int
    tables: Ints
    starts: Ints
    lengths: Ints
    chunks: tuple[Chunk, ...]
    sampled: Ints
    samplers: list[tuple[Scheduled, int]]


def prepare(rows: list[Scheduled], texts: Mapping[int, Text], block_size: int) -> Batch:
    """The batch of a plan's rows. Work grows with sequences and blocks, not with tokens.

    A single token is handled as a decode whatever it belongs to: the arithmetic is the same.
    """
    singles = [row for row in rows if row.tokens == 1]
    longer = [row for row in rows if row.tokens > 1]
    ids: list[Ints | list[int]] = []
    table: list[int] = []
    starts: list[int] = []
    first_row: dict[int, int] = {}

    contexts = np.array([row.context for row in singles], dtype=np.int64)
    ids.append([int(texts[row.request.index].row(row.context, 1)[0]) for row in singles])
    for row in singles:
        first_row[row.request.index] = len(starts)
        starts.append(len(table))
        table.extend(row.request.blocks[: row.context // block_size + 1])
    tables, begin = np.array(table, dtype=np.int64), np.array(starts, dtype=np.int64)
    positions, blocks = [contexts], [tables[begin + contexts // block_size]]

    chunks = []
    start = len(singles)
    for row in longer:
        end = row.context + row.tokens
        owned = np.array(row.request.blocks[: -(-end // block_size)], dtype=np.int64)
        at = np.arange(row.context, end, dtype=np.int64)
        ids.append(texts[row.request.index].row(row.context, row.tokens, row.drafts))
        positions.append(at)
        blocks.append(owned[at // block_size])
        chunks.append(Chunk(start, row.tokens, row.context, owned))
        first_row[row.request.index] = start
        start += row.tokens

    where = np.concatenate(positions)
    samplers, sampled = [], []
    for row in rows:
        if row.samples:
            samplers.append((row, len(sampled)))
            last = first_row[row.request.index] + row.tokens
            sampled.extend(range(last - 1 - row.drafts, last))
    return Batch(
        token_ids=np.concatenate([np.asarray(part, dtype=np.int64) for part in ids]),
        positions=where,
        blocks=np.concatenate(blocks),
        offsets=where % block_size,
        decodes=len(singles),
        tables=tables,
        starts=begin,
        lengths=contexts + 1,
        chunks=tuple(chunks),
        sampled=np.array(sampled, dtype=np.int64),
        samplers=samplers,
    )
