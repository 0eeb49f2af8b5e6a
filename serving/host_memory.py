"""KV blocks in the host's memory: those of swapped-out requests, and a second tier of the prefix cache.

Nothing is copied here: what must be copied before a step computes is noted as `Move`s, in an order in which they are right one
after another. A slot holds what a block of the device holds.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from serving.request import Request


class MoveKind(IntEnum):
    """Why a block is copied: out to the host or back, of a preempted request or of the prefix cache."""

    SWAP_OUT = 0
    SWAP_IN = 1
    OFFLOAD = 2
    FETCH = 3


class Move(NamedTuple):
    """One block of KV (of all layers) is copied between a block of the device and a slot of the host."""

    kind: MoveKind
    block: int
    slot: int

    @property
    def out(self) -> bool:
        """From the device to the host."""
        return self.kind in (MoveKind.SWAP_OUT, MoveKind.OFFLOAD)


def moved_blocks(moves: Iterable[Move]) -> tuple[int, int, int, int]:
    """Blocks that moves copy, by kind in the order of `MoveKind`."""
    counts = Counter(move.kind for move in moves)
    swap_out, swap_in, offload, fetch = (counts[kind] for kind in MoveKind)
    return swap_out, swap_in, offload, fetch


class Slots:
    """Free slots, numbered from `first`: those given back last are taken first, then those never used, the lowest first. What was
    never used takes no memory here, however much the host has."""

    def __init__(self, first: int, count: int) -> None:
        self.back: list[int] = []
        self.unused, self.end = first, first + count

    def __len__(self) -> int:
        return len(self.back) + self.end - self.unused

    def __iter__(self) -> Iterator[int]:
        return iter([*range(self.end - 1, self.unused - 1, -1), *self.back])

    def take(self) -> int:
        if self.back:
            return self.back.pop()
        self.unused += 1
        return self.unused - 1

    def give(self, slots: Iterable[int]) -> None:
        self.back += slots


class SwapSpace:
    """Slots for the KV of preempted requests, until they are back. All blocks of a request go out, shared ones too: those who
    share them may end, and their blocks be taken, before it returns."""

    def __init__(self, slots: int, moves: list[Move]) -> None:
        self.free = Slots(0, slots)
        self.moves = moves

    def put(self, request: Request, blocks: int) -> bool:
        """Copies the first `blocks` blocks of `request` out, or changes nothing and returns False."""
        if not 0 < blocks <= len(self.free):
            return False
        request.host_slots = [self.free.take() for _ in range(blocks)]
        self.moves += map(Move, [MoveKind.SWAP_OUT] * blocks, request.blocks, request.host_slots)
        return True

    def bring_back(self, request: Request, first: int, end: int) -> None:
        """Copies its blocks [first, end) in again and gives all its slots back: what is before `first` it found in the cache."""
        slots, blocks = request.host_slots[first:end], request.blocks[first:end]
        self.moves += map(Move, [MoveKind.SWAP_IN] * len(slots), blocks, slots)
        self.drop(request)

    def drop(self, request: Request) -> None:
        """Gives its slots back."""
        self.free.give(reversed(request.host_slots))
        request.host_slots = []


class CacheTier:
    """The prefix cache's second tier: hashed blocks that the device evicts come here, least recently used ones go.

    A block that is fetched stays here as well, so that its next eviction costs no copy.

    slots: by hash, the one used longest ago first.
    """

    def __init__(self, first: int, slots: int, moves: list[Move]) -> None:
        self.slots: OrderedDict[bytes, int] = OrderedDict()
        self.free = Slots(first, slots)
        self.moves = moves
        self.held: set[bytes] = set()  # about to be fetched: not evicted

    def __contains__(self, key: bytes) -> bool:
        return key in self.slots

    def put(self, key: bytes, block: int) -> None:
        """The device evicts `block`, the last with that text."""
        if key in self.slots:
            self.slots.move_to_end(key)
            return
        if not len(self.free):
            oldest = next((known for known in self.slots if known not in self.held), None)
            if oldest is None:
                return
            self.free.give([self.slots.pop(oldest)])
        slot = self.slots[key] = self.free.take()
        self.moves.append(Move(MoveKind.OFFLOAD, block, slot))

    def fetch(self, keys: Sequence[bytes], blocks: Sequence[int]) -> None:
        """Copies the texts `keys` into `blocks`."""
        for key, block in zip(keys, blocks, strict=True):
            self.slots.move_to_end(key)
            self.moves.append(Move(MoveKind.FETCH, block, self.slots[key]))


class HostMemory:
    """Slots 0.. are for swapped-out requests, those behind them for the cache's second tier. `moves`: noted and not yet taken."""

    def __init__(self, swap_blocks: int = 0, offload_blocks: int = 0) -> None:
        self.moves: list[Move] = []
        self.swap = SwapSpace(swap_blocks, self.moves)
        self.tier = CacheTier(swap_blocks, offload_blocks, self.moves) if offload_blocks else None

    def take_moves(self) -> Sequence[Move]:
        """What the step that has just been decided copies before it computes, in this order."""
        if not self.moves:
            return ()
        moves = self.moves[:]
        self.moves.clear()
        return moves
