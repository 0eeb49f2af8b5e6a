"""Paged KV memory with real block ids and a prefix cache, one block at a time: what a live engine uses.

Rules (vLLM V1): blocks are shared by reference count; a full block is found again by the hash of its text and of all text
before it; free blocks wait in one queue and keep their hash until somebody takes them from its head.

Two things beyond: a block that is evicted may move to a tier in the host's memory, and blocks of pinned text are never evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from serving.host_memory import CacheTier
from serving.request import Request, Segment

_OPEN_END = 1 << 62  # the answer grows: its segment has no end yet


class BlockHashes:
    """Chained hashes of a request's full blocks, computed once and only as far as asked for."""

    __slots__ = ("block_size", "hashes", "offset", "segment", "segments")

    def __init__(self, request: Request, block_size: int) -> None:
        self.block_size = block_size
        self.segments: list[Segment] = [s for s in request.prompt if s[1] > 0]
        self.segments.append((request.output_key, _OPEN_END))
        self.hashes: list[bytes] = []
        self.segment = 0
        self.offset = 0

    def first(self, n: int) -> list[bytes]:
        """Hashes of the first n blocks. The caller knows that their text exists."""
        while len(self.hashes) < n:
            parent = self.hashes[-1] if self.hashes else b""
            self.hashes.append(blake2b(parent + self._next_text(), digest_size=16).digest())
        return self.hashes[:n]

    def _next_text(self) -> bytes:
        """The text of one more block as pieces of segments; borders follow from the text, so equal text is equal bytes."""
        pieces, missing = [], self.block_size
        while missing:
            key, length = self.segments[self.segment]
            take = min(missing, length - self.offset)
            pieces.append((key, self.offset, take))
            missing -= take
            self.offset += take
            if self.offset == length:
                self.segment += 1
                self.offset = 0
        return repr(pieces).encode()


class BlockPool:
    """`usable` blocks with ids 1..usable (id 0 is the null block, never handed out). None is ever stranded: a text may lie in
    any of them.

    Args:
        tier: where evicted blocks go, if anywhere. A hit there is a negative number: -1 for the first block of the text.
        pinned: `(content key, tokens)`: whole blocks of these texts at the start of a prompt leave the free queue for good.
    """

    stranded_blocks = 0

    def __init__(
        self,
        usable: int,
        block_size: int,
        enable_prefix_caching: bool = True,
        tier: CacheTier | None = None,
        pinned: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.usable = usable
        self.block_size = block_size
        self.caching = enable_prefix_caching
        self.queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, usable + 1))
        self.references = [0] * (usable + 1)
        self.hash_of: list[bytes | None] = [None] * (usable + 1)
        self.cached: dict[bytes, dict[int, None]] = {}  # blocks of equal text, the one published first leads
        self.tier = tier
        self.pinned_text: set[bytes] = set()
        for key, tokens in pinned:
            text = BlockHashes(Request(-1, ((key, tokens),), 1), block_size)
            self.pinned_text.update(text.first(tokens // block_size))
        self.pinned: dict[bytes, int] = {}  # by text, blocks that nobody owns and nobody else gets

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody owns, cached ones included, pinned ones not."""
        return len(self.queue)

    def find_prefix(self, request: Request) -> list[int]:
        """Cached blocks of the longest known prefix. At least one token is left to compute."""
        hits: list[int] = []
        if self.caching:
            for key in self._hashes(request).first((request.num_tokens - 1) // self.block_size):
                blocks = self.cached.get(key)
                if blocks is not None:
                    hits.append(next(iter(blocks)))
                elif self.tier is not None and key in self.tier:
                    hits.append(-1 - len(hits))
                else:
                    break
        return hits

    def lead(self, request: Request, tokens: int) -> bytes | None:
        """A name of the blocks of its first `tokens` tokens, equal for equal texts; None if it has no such full blocks."""
        blocks = -(-tokens // self.block_size)
        if not self.caching or blocks > request.num_tokens // self.block_size:
            return None
        return self._hashes(request).first(blocks)[-1]

    def blocks_needed(self, request: Request, tokens: int, hits: Sequence[int] = ()) -> int:
        """Blocks that leave the free queue if `request` is to hold `tokens` tokens, `hits` first."""
        new = -(-tokens // self.block_size) - len(request.blocks) - len(hits)
        return max(new, 0) + sum(self._is_free(block) for block in hits)

    def allocate(self, request: Request, tokens: int, hits: Sequence[int] = ()) -> bool:
        """Gives `request` the blocks for `tokens` tokens, or changes nothing and returns False."""
        if not hits and tokens <= len(request.blocks) * self.block_size:
            return True  # a decode inside its last block, as most rows are
        if self.blocks_needed(request, tokens, hits) > len(self.queue):
            return False
        for block in hits:
            if block >= 0:
                self._take(block)
        if self.tier is not None and min(hits, default=0) < 0:
            self._fetch(request, self.tier, hits)
        else:
            request.blocks.extend(hits)
        for _ in range(-(-tokens // self.block_size) - len(request.blocks)):
            request.blocks.append(self._new_block())
        return True

    def _fetch(self, request: Request, tier: CacheTier, hits: Sequence[int]) -> None:
        """Gives `request` its hits, those in the tier as new blocks into which they are copied."""
        hashes = self._hashes(request).first(len(hits))
        fetched = [(i, hashes[i]) for i, block in enumerate(hits) if block < 0]
        tier.held = {key for _, key in fetched}  # what is evicted for them must not push them out
        request.blocks.extend(block if block >= 0 else self._new_block() for block in hits)
        tier.held = set()
        into = [request.blocks[i] for i, _ in fetched]
        for block, (_, key) in zip(into, fetched, strict=True):
            self.hash_of[block] = key
            self.cached[key] = {block: None}
        tier.fetch([key for _, key in fetched], into)

    def publish(self, request: Request, tokens: int) -> None:
        """Makes full blocks of the first `tokens` tokens findable, also those that this very step computes: a layer
        writes KV before attention reads it."""
        if not self.caching:
            return
        full = min(tokens, request.num_tokens) // self.block_size
        if full > request.published:
            hashes = self._hashes(request).first(full)
            for i in range(request.published, full):
                block, key = request.blocks[i], hashes[i]
                self.hash_of[block] = key
                self.cached.setdefault(key, {})[block] = None
            request.published = full

    def open(self, request: Request, hits: Sequence[int] = ()) -> None:
        """Prepares an empty block table; blocks found in the cache count as published."""
        request.blocks = []
        request.published = len(hits)

    def free(self, request: Request) -> None:
        """Takes all blocks back, last to first: hashed ones to the tail, so that a prompt's deepest block is evicted
        first; the others to the head."""
        plain = []
        for block in reversed(request.blocks):
            self.references[block] -= 1
            if self.references[block] == 0 and not self._pin(block):
                self.queue[block] = None
                if self.hash_of[block] is None:
                    plain.append(block)
        for block in reversed(plain):
            self.queue.move_to_end(block, last=False)
        request.blocks = []

    def _hashes(self, request: Request) -> BlockHashes:
        hashes: BlockHashes | None = request.text
        if hashes is None:
            hashes = request.text = BlockHashes(request, self.block_size)
        return hashes

    def _is_free(self, block: int) -> bool:
        """Whether a hit takes a block from the free queue: one that nobody owns, or a new one for what is in the tier."""
        if block < 0:
            return True
        return self.references[block] == 0 and block in self.queue

    def _pin(self, block: int) -> bool:
        """Whether the block, which nobody owns any more, is kept from everybody: the first with a pinned text is."""
        key = self.hash_of[block]
        if key is None or key not in self.pinned_text or key in self.pinned:
            return False
        self.pinned[key] = block
        return True

    def _take(self, block: int) -> None:
        if self.references[block] == 0:
            key = self.hash_of[block]
            if key is not None and self.pinned.get(key) == block:
                del self.pinned[key]
            else:
                del self.queue[block]
        self.references[block] += 1

    def _new_block(self) -> int:
        block = next(iter(self.queue))
        self._forget(block)
        self._take(block)
        return block

    def _forget(self, block: int) -> None:
        key = self.hash_of[block]
        if key is not None:
            self.hash_of[block] = None
            blocks = self.cached[key]
            del blocks[block]
            if not blocks:
                del self.cached[key]
                if self.tier is not None:
                    self.tier.put(key, block)
