"""Sequences in a paged cache of which every slot that they do not own is garbage, and what attention over them has to yield."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.gpu_backend.kernels.conftest import Guards

GARBAGE = (float("nan"), 1e4, float("inf"))
MOST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


class PagedMemory:
    """Random keys and values for sequences of `lengths`, in blocks of `block` in random order, none of them shared.

    caches, scales: keys' and values', guarded. What nobody owns holds garbage: rests of blocks, whole blocks, scales, and the blocks
    that unused entries of the tables name. dense: by sequence, keys and values `(kv_heads, length, dim)` in float64.
    """

    def __init__(
        self, guards: Guards, lengths: list[int], block: int, kv_heads: int, dim: int, dtype: torch.dtype, seed: int = 0
    ) -> None:
        g = torch.Generator().manual_seed(seed)
        needs = [-(-n // block) for n in lengths]
        blocks = sum(needs) + 3
        ids = torch.randperm(blocks, generator=g).tolist()
        free = ids[sum(needs)]
        tables = torch.full((len(lengths), max([1, *needs]) + 1), free, dtype=torch.int32)
        self.lengths, self.block = lengths, block
        self.dense: list[list[torch.Tensor]] = [[] for _ in lengths]
        self.caches, self.scales = [], []
        owned = torch.zeros(blocks, block, dtype=torch.bool)
        for s, need in enumerate(needs):
            tables[s, :need] = torch.tensor([ids.pop(0) for _ in range(need)], dtype=torch.int32)
            at = torch.arange(lengths[s])
            owned[tables[s][at // block].long(), at % block] = True
        garbage = torch.tensor(GARBAGE)[torch.arange(blocks * block) % 3].view(blocks, 1, block)
        for _ in range(2):
            drawn = torch.randn(blocks, kv_heads, block, dim, generator=g)
            scale = None
            if dtype in MOST:
                scale = drawn.abs().amax(-1) / MOST[dtype]
                drawn = drawn / scale.unsqueeze(-1)
                drawn = drawn.round() if dtype == torch.int8 else drawn
            kept = drawn.to(dtype)
            exact = kept.double() if scale is None else kept.double() * scale.double().unsqueeze(-1)
            for s, n in enumerate(lengths):
                mine = exact[tables[s, : needs[s]].long()].transpose(0, 1).reshape(kv_heads, -1, dim)
                self.dense[s].append(mine[:, :n])
            foreign = ~owned.view(blocks, 1, block)
            if scale is None:
                kept = torch.where(foreign.unsqueeze(-1), garbage.unsqueeze(-1).to(dtype), kept)
            else:
                scale = torch.where(foreign, garbage, scale)
                raw = kept.view(torch.uint8)
                raw.masked_fill_(foreign.unsqueeze(-1), 0x7F)
            self.caches.append(guards.place(kept))
            self.scales.append(None if scale is None else guards.place(scale))
        self.tables = guards.place(tables)
        self.seq_lens = guards.place(torch.tensor(lengths, dtype=torch.int32))

    def expected(self, q: torch.Tensor, heads: int, s: int) -> torch.Tensor:
        """Dense causal attention in float64 for the last tokens of sequence s: queries `(n, at least heads * dim)`."""
        keys, values = (part.repeat_interleave(heads // len(part), 0) for part in self.dense[s])
        n, length, dim = len(q), keys.shape[1], keys.shape[2]
        queries = q[:, : heads * dim].double().view(n, heads, dim).transpose(0, 1)
        scores = queries @ keys.transpose(1, 2) * dim**-0.5
        seen = torch.arange(length) <= torch.arange(length - n, length).unsqueeze(1)
        weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
        return (weights @ values).transpose(0, 1).reshape(n, heads * dim)

    def decode(
        self, attend: Callable[..., torch.Tensor], q: torch.Tensor, out: torch.Tensor, heads: int, **more: object
    ) -> None:
        scale = self.caches[0].shape[3] ** -0.5
        assert attend(q, *self.caches, self.tables, self.seq_lens, scale, out, heads, *self.scales, **more) is out


def queries(guards: Guards, rows: int, heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    """Queries at the front of rows whose rest, the keys and values of a step, is NaN."""
    wide = torch.full((rows, (heads + 2 * kv_heads) * dim), float("nan"), dtype=dtype)
    drawn = torch.randn(rows, heads * dim, generator=torch.Generator().manual_seed(1))
    wide[:, : heads * dim] = drawn.to(dtype)
    return guards.place(wide)
