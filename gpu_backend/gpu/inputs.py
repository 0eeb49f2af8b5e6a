"""The inputs of a step: filled on the host in one pinned piece of memory, copied to the device in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gpu_backend.gpu.block_tables import BlockTables
from gpu_backend.tokens import Text
from serving.plan import Scheduled

_ALIGN = 16  # bytes; the kernels are compiled for pointers that are multiples of it


class Layout:
    """Named integer arrays in one piece of memory."""

    def __init__(self, **arrays: tuple[int, type[np.integer[Any]]]) -> None:
        self.places: dict[str, tuple[int, int, np.dtype[Any]]] = {}
        self.size = 0
        for name, (length, kind) in arrays.items():
            dtype = np.dtype(kind)
            self.places[name] = (self.size, length, dtype)
            self.size += -(-length * dtype.itemsize // _ALIGN) * _ALIGN

    def host(self, memory: torch.Tensor) -> dict[str, np.ndarray]:
        """Views of uint8 host memory."""
        raw = memory.numpy()
        return {name: raw[at : at + n * dtype.itemsize].view(dtype) for name, (at, n, dtype) in self.places.items()}

    def device(self, memory: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of uint8 device memory."""
        kinds = {np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64}
        return {
            name: memory[at : at + n * dtype.itemsize].view(kinds[dtype])
            for name, (at, n, dtype) in self.places.items()
        }


class StepTensors(NamedTuple):
    """What the decoder is given, on the device. T rows: first one of each decoding sequence, then the chunks.

    token_ids, positions: `(T,)` int32. slots: `(T,)` int64, -1 for padding. tables: `(S, width)` int32. seq_lens: `(S,)` int32, the
    step's tokens included, 0 for padding. decodes: sequences that compute one token. chunk_starts: `(chunks + 1,)` int32, first row
    of each chunk, counted from the first chunk. most_queries: of a chunk. samples: `(R,)` int64 rows that get a token, None for all.
    seeds: `(R,)` int64, of the sampler.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    tables: torch.Tensor
    seq_lens: torch.Tensor
    decodes: int
    chunk_starts: torch.Tensor
    most_queries: int
    samples: torch.Tensor | None
    seeds: torch.Tensor


@dataclass(frozen=True)
class Bucket:
    """The size of a captured step: sequences, each with as many query tokens."""

    sequences: int
    queries: int = 1


@dataclass(frozen=True)
class Filled:
    """What a step looks like to the host. bucket: the graph it runs as, None without one.

    order: the plan's rows, decodes first. sampled: those that get tokens, with the first of their rows among the sampled ones.
    changes: cells of the block tables that are new; many: the cells and their block ids, where they are too many for the buffer.
    """

    order: list[Scheduled]
    rows: int
    decodes: int
    chunks: int
    most_queries: int
    sampled: list[tuple[Scheduled, int]]
    sampled_rows: int
    changes: int
    many: tuple[NDArray[np.int64], NDArray[np.int32]] | None
    bucket: Bucket | None


class StepInputs:
    """Buffers for steps of up to `tokens` tokens and `sequences` sequences; two on the host, so that the next step can be
    filled while the copy of the last one is still under way."""

    def __init__(self, tokens: int, sequences: int, tables: BlockTables, block_size: int, device: torch.device) -> None:
        self.tables, self.block_size, self.device = tables, block_size, device
        self.most_changes = tokens // block_size + 2 * sequences + 64
        i32, i64 = np.int32, np.int64
        layout = Layout(
            token_ids=(tokens, i32),
            positions=(tokens, i32),
            seq_lens=(sequences, i32),
            chunk_starts=(sequences + 1, i32),
            table_rows=(sequences, i32),
            feed=(tokens, i32),
            change_ids=(self.most_changes, i32),
            slots=(tokens, i64),
            samples=(tokens, i64),
            seeds=(tokens, i64),
            change_at=(self.most_changes, i64),
        )
        self._pinned = device.type == "cuda"
        self._hosts = [torch.zeros(layout.size, dtype=torch.uint8, pin_memory=self._pinned) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in range(2)] if self._pinned else []
        self._views = [layout.host(memory) for memory in self._hosts]
        self._memory = torch.zeros(layout.size, dtype=torch.uint8, device=device)
        self.on_device = layout.device(self._memory)
        self.step_tables = torch.zeros((sequences, tables.host.shape[1]), dtype=torch.int32, device=device)
        self.turn = 0

    def fill(
        self,
        rows: list[Scheduled],
        texts: Mapping[int, Text],
        bucket: Bucket | None,
        unknown: Mapping[int, int],
    ) -> Filled:
        """Writes a plan's rows into the next host buffer; `upload` copies it to the device.

        Args:
            bucket: size to pad to, for rows that all have `bucket.queries` tokens.
            unknown: by request index, where among the tokens sampled by the step before its newest token will be found.
        """
        self.turn ^= 1
        if self._pinned:
            self._copied[self.turn].synchronize()  # a draft model runs more steps ahead than there are buffers
        host = self._views[self.turn]
        order = rows
        decodes = sum(row.tokens == 1 for row in rows)
        if bucket is not None and bucket.queries > 1:
            decodes = 0
        elif decodes < len(rows):
            order = [row for row in rows if row.tokens == 1] + [row for row in rows if row.tokens != 1]
        table_rows, at, ids = self.tables.take(order, self.block_size)
        s = len(order)
        tokens = np.fromiter((row.tokens for row in order), np.int32, s)
        contexts = np.fromiter((row.context for row in order), np.int32, s)
        starts = np.zeros(s + 1, dtype=np.int32)
        np.cumsum(tokens, out=starts[1:])
        t = int(starts[-1])
        positions = np.arange(t, dtype=np.int32) + np.repeat(contexts - starts[:-1], tokens)
        blocks = self.tables.host[np.repeat(table_rows, tokens), positions // self.block_size]
        host["positions"][:t] = positions
        host["slots"][:t] = blocks.astype(np.int64) * self.block_size + positions % self.block_size
        host["seq_lens"][:s] = contexts + tokens
        host["table_rows"][:s] = table_rows
        host["chunk_starts"][: s - decodes + 1] = starts[decodes:] - starts[decodes]
        _token_ids(order, starts.tolist(), texts, unknown, host)
        sampled, samples = _sampled(order, starts.tolist(), whole=bucket is not None)
        host["samples"][: len(samples)] = samples
        seeds = _seeds(order, tokens, contexts)
        host["seeds"][: len(samples)] = seeds[samples]
        changes = len(at)
        if changes <= self.most_changes:
            host["change_at"][:changes] = at
            host["change_ids"][:changes] = ids
        if bucket is not None:
            _pad(host, s, t, bucket)
        most = max((row.tokens for row in order[decodes:]), default=0)
        many = (at, ids) if changes > self.most_changes else None
        return Filled(order, t, decodes, s - decodes, most, sampled, len(samples), changes, many, bucket)

    def upload(self, filled: Filled) -> None:
        """Starts the copy to the device, and brings the tables there up to date."""
        self._memory.copy_(self._hosts[self.turn], non_blocking=True)
        if self._pinned:
            self._copied[self.turn].record()
        cells = self.tables.device.view(-1)
        if filled.many is not None:  # long prompts that were found in the cache
            at, ids = (torch.from_numpy(part).to(self.device) for part in filled.many)
            cells.index_copy_(0, at, ids)
        elif filled.changes:
            n = filled.changes
            cells.index_copy_(0, self.on_device["change_at"][:n], self.on_device["change_ids"][:n])
        n = filled.decodes + filled.chunks if filled.bucket is None else filled.bucket.sequences
        torch.index_select(self.tables.device, 0, self.on_device["table_rows"][:n], out=self.step_tables[:n])

    def tensors(self, filled: Filled) -> StepTensors:
        """The device views of a step that runs as it is."""
        d, s, t = self.on_device, filled.decodes + filled.chunks, filled.rows
        return StepTensors(
            d["token_ids"][:t],
            d["positions"][:t],
            d["slots"][:t],
            self.step_tables[:s],
            d["seq_lens"][:s],
            filled.decodes,
            d["chunk_starts"][: filled.chunks + 1],
            filled.most_queries,
            d["samples"][: filled.sampled_rows],
            d["seeds"][: filled.sampled_rows],
        )

    def padded(self, bucket: Bucket) -> StepTensors:
        """The device views of a step that is padded to a bucket: always the same memory."""
        d, s, q = self.on_device, bucket.sequences, bucket.queries
        t = s * q
        decodes = s if q == 1 else 0
        return StepTensors(
            d["token_ids"][:t],
            d["positions"][:t],
            d["slots"][:t],
            self.step_tables[:s],
            d["seq_lens"][:s],
            decodes,
            d["chunk_starts"][: s - decodes + 1],
            0 if q == 1 else q,
            None,
            d["seeds"][:t],
        )


def _token_ids(
    order: list[Scheduled],
    starts: list[int],
    texts: Mapping[int, Text],
    unknown: Mapping[int, int],
    host: dict[str, np.ndarray],
) -> None:
    """Writes the token of each row of the batch, and where the device finds it if the host does not know it yet."""
    ids, feed = host["token_ids"], host["feed"]
    feed[: starts[-1]] = -1
    for row, start in zip(order, starts, strict=False):
        index = row.request.index
        if index in unknown:  # the newest token is still on the device; it is the last of this row's
            feed[start + row.tokens - 1] = unknown[index]
            if row.tokens > 1:
                ids[start : start + row.tokens - 1] = texts[index].row(row.context, row.tokens - 1)
            ids[start + row.tokens - 1] = 0
        else:
            ids[start : start + row.tokens] = texts[index].row(row.context, row.tokens, row.drafts)


def _sampled(
    order: list[Scheduled], starts: list[int], whole: bool
) -> tuple[list[tuple[Scheduled, int]], NDArray[np.int64]]:
    """Rows of the batch that get a token: the last of each that samples, and with drafts the ones that these stand on; or all of
    them (`whole`). With each plan row that samples, where its first one is among them."""
    sampled, parts, n = [], [np.empty(0, dtype=np.int64)], 0
    for i, row in enumerate(order):
        if row.samples:
            first, last = starts[i + 1] - 1 - row.drafts, starts[i + 1]
            sampled.append((row, first if whole else n))
            parts.append(np.arange(first, last, dtype=np.int64))
            n += 1 + row.drafts
    return sampled, np.arange(starts[-1], dtype=np.int64) if whole else np.concatenate(parts)


def _seeds(order: list[Scheduled], tokens: NDArray[np.int32], contexts: NDArray[np.int32]) -> NDArray[np.int64]:
    """A seed for each row of the batch, by request and position, so that neighbours do not matter."""
    requests = np.fromiter((row.request.index for row in order), np.int64, len(order))
    ends = np.cumsum(tokens)
    within = np.arange(ends[-1], dtype=np.int64) - np.repeat(ends - tokens, tokens)
    return (np.repeat(requests, tokens) << 32) + np.repeat(contexts, tokens) + within


def _pad(host: dict[str, np.ndarray], s: int, t: int, bucket: Bucket) -> None:
    """Rows and sequences that nobody asked for: they write nowhere, and read nothing or the null block."""
    q, end = bucket.queries, bucket.sequences * bucket.queries
    host["token_ids"][t:end] = 0
    host["feed"][t:end] = -1
    host["positions"][t:end] = np.arange(end - t) % q
    host["slots"][t:end] = -1
    host["seeds"][t:end] = 0
    host["table_rows"][s : bucket.sequences] = 0
    host["seq_lens"][s : bucket.sequences] = 0 if q == 1 else q
    if q > 1:
        host["chunk_starts"][: bucket.sequences + 1] = np.arange(bucket.sequences + 1) * q
