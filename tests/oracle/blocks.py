"""KV blocks one by one: a plain list as the free queue, a plain dict as the prefix index."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

Hash = tuple[int, tuple[Hashable, ...]]
"""`(number of the parent's hash, the block's own tokens)`: equal exactly where the whole text up to here is equal."""


@dataclass(eq=False)
class Block:
    """One block of KV memory; `number` is what a kernel would index with."""

    number: int
    owners: int = 0
    hash: Hash | None = None


class Blocks:
    """All usable blocks of one engine. `free` is in eviction order, its head (index 0) goes first."""

    def __init__(self, usable: int, caching: bool) -> None:
        self.every = [Block(number) for number in range(1, usable + 1)]
        self.free = list(self.every)
        self.caching = caching
        self.index: dict[Hash, list[Block]] = {}
        self.numbers: dict[Hash, int] = {}

    def chain(self, hashes: list[Hash], text: list[Hashable], block_size: int) -> None:
        """Appends the hashes of the full blocks of `text` that are missing; each covers everything before it."""
        while (len(hashes) + 1) * block_size <= len(text):
            parent = self.numbers[hashes[-1]] if hashes else 0
            start = len(hashes) * block_size
            hashes.append((parent, tuple(text[start : start + block_size])))
            self.numbers.setdefault(hashes[-1], len(self.numbers) + 1)

    def lookup(self, hashes: list[Hash]) -> list[Block]:
        """Blocks of the longest cached prefix; of duplicates the one that was published first."""
        found = []
        for hash_ in hashes:
            if not self.index.get(hash_):
                break
            found.append(self.index[hash_][0])
        return found

    def hold(self, blocks: list[Block]) -> None:
        """One owner more for each; those nobody owned leave the free queue."""
        for block in blocks:
            if block.owners == 0:
                self.free.remove(block)
            block.owners += 1

    def take(self, n: int) -> list[Block]:
        """The next n blocks of the free queue, without the text they held."""
        taken = [self.free.pop(0) for _ in range(n)]
        for block in taken:
            self.forget(block)
            block.owners = 1
        return taken

    def forget(self, block: Block) -> None:
        if block.hash is not None:
            self.index[block.hash].remove(block)
            block.hash = None

    def publish(self, block: Block, hash_: Hash) -> None:
        """From now on a lookup finds this block."""
        assert block.hash is None
        block.hash = hash_
        self.index.setdefault(hash_, []).append(block)

    def release(self, table: list[Block]) -> None:
        """One owner less for each block of a table, deepest first: text to the tail, blank blocks to the head."""
        blank: list[Block] = []
        text: list[Block] = []
        for block in reversed(table):
            block.owners -= 1
            if block.owners == 0:
                (blank if block.hash is None else text).append(block)
        self.free[:] = blank + self.free + text
