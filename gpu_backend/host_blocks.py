"""KV blocks in the host's memory: what the scheduler's moves really copy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby

import torch

from scenarios.errors import InputError
from serving.host_memory import Move

_AT_ONCE = 64  # blocks that are gathered on the device before they are copied


class HostBlocks:
    """`slots` blocks in the host's memory, each a contiguous row of bytes: all layers of a block, keys, values and scales.

    A slot is copied in one piece: on a GPU from and to pinned memory, in the order of its stream, so that a step that was launched
    before is done with a block when it is copied out, and one launched after reads what was copied in.

    Args:
        parts: KV memory, `(layers, blocks, ...)` each.

    Raises:
        InputError: this machine has not so much memory.
    """

    def __init__(self, parts: Sequence[torch.Tensor], slots: int) -> None:
        self.parts = [part.view(torch.uint8).flatten(2) for part in parts]
        self.widths = [part.shape[0] * part.shape[2] for part in self.parts]
        size, have = slots * sum(self.widths), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if size > have:
            raise InputError(
                f"engine: {slots} KV blocks in the host's memory have {size / 1e9:.1f} GB, this machine has {have / 1e9:.1f} GB; "
                f"lower swap_space or kv_offloading_size"
            )
        self.device = self.parts[0].device
        self.memory = torch.empty((slots, sum(self.widths)), dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    @torch.inference_mode()
    def move(self, moves: Iterable[Move]) -> None:
        """Launches the copies, one after another."""
        for out, run in groupby(moves, key=lambda move: move.out):
            same = list(run)
            for i in range(0, len(same), _AT_ONCE):
                (self._out if out else self._in)(same[i : i + _AT_ONCE])

    def _out(self, moves: list[Move]) -> None:
        ids = self._blocks(moves)
        rows = torch.cat([part.index_select(1, ids).transpose(0, 1).flatten(1) for part in self.parts], dim=1)
        for row, move in zip(rows, moves, strict=True):
            self.memory[move.slot].copy_(row, non_blocking=True)

    def _in(self, moves: list[Move]) -> None:
        ids = self._blocks(moves)
        rows = torch.empty((len(moves), sum(self.widths)), dtype=torch.uint8, device=self.device)
        for row, move in zip(rows, moves, strict=True):
            row.copy_(self.memory[move.slot], non_blocking=True)
        for part, own in zip(self.parts, rows.split(self.widths, dim=1), strict=True):
            part.index_copy_(1, ids, own.unflatten(1, (part.shape[0], -1)).transpose(0, 1))

    def _blocks(self, moves: list[Move]) -> torch.Tensor:
        ids = torch.tensor([move.block for move in moves])
        if self.device.type == "cuda":
            ids = ids.pin_memory()
        return ids.to(self.device, non_blocking=True)
