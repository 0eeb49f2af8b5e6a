"""KV memory for the simulator: the same decisions as `serving.block_pool`, in runs of blocks instead of block by block.

Two facts make this exact. Free blocks without a hash go to the head of the free queue and are alike, so a counter holds them.
Free blocks with a hash lie in the queue in the order in which their owners ended, each owner's deepest block first, so they
form runs that are eaten from their deep end.

Text is a tree: a `Text` node is one segment in its context (what stood before it, and where it begins), so two prompts
share a node exactly as far as they are equal, and a cached block is `(node of its last token, its index)`.
"""

from __future__ import annotations

from collections.abc import Hashable

from serving.request import Request


class CountPool:
    """KV memory without a prefix cache: blocks are alike, so their number is all there is."""

    __slots__ = ("block_size", "free")

    def __init__(self, usable: int, block_size: int) -> None:
        self.free = usable
        self.block_size = block_size

    def take(self, n: int) -> None:
        """n blocks leave the free queue (the caller has looked at `free`)."""
        self.free -= n

    def release(self, request: Request, computed: int) -> None:
        """A request that holds the blocks of `computed` tokens gives them back."""
        self.free += -(-computed // self.block_size)


class Extent:
    """Blocks `lo..hi` of a text that lie in memory once, share their owners, and are queued together when nobody owns them.

    `rest` continues a run that was split after somebody noted it down; `before`/`after` link the free queue.
    """

    __slots__ = ("after", "before", "hi", "lo", "node", "references", "rest")

    def __init__(self, node: Text | None, lo: int, hi: int, references: int = 1) -> None:
        self.node = node
        self.lo = lo
        self.hi = hi
        self.references = references
        self.rest: Extent | None = None
        self.before: Extent = self
        self.after: Extent = self


class Text:
    """A segment in its context. `extents`: its cached blocks; of equal blocks the one published first stands first."""

    __slots__ = ("children", "extents", "key", "parent", "start", "users")

    def __init__(self, parent: Text | None, start: int, key: Hashable) -> None:
        self.parent = parent
        self.start = start  # position of its first token in the whole text
        self.key = key
        self.children: dict[tuple[int, Hashable], Text] = {}
        self.extents: list[Extent] = []
        self.users = 0

    def find(self, index: int, end: int) -> tuple[Extent, int] | None:
        """The cached block `index` published first, and how far (at most `end`) its extent leads; None if not cached."""
        for extent in self.extents:
            if extent.lo <= index < extent.hi:
                return extent, min(end, extent.hi)
            if index < extent.lo < end:
                end = extent.lo  # from there on this earlier copy is the one to be found
        return None


class Path:
    """A request's text as nodes, and the runs of hashed blocks that it owns, shallow to deep: `(extent, blocks)`."""

    __slots__ = ("ends", "nodes", "owned", "published")

    def __init__(self, nodes: list[Text], ends: list[int]) -> None:
        self.nodes = nodes
        self.ends = ends  # position after each node's last token; the answer's own node comes last and has no end
        self.owned: list[tuple[Extent, int]] = []
        self.published = 0


Match = list[tuple[Extent, int, int]]
"""Cached blocks of a prefix: `(extent, first, after last)` block indices, shallow to deep."""


class ExtentPool(CountPool):
    """KV memory with a prefix cache.

    free: blocks that nobody owns; `plain` of them have no hash and are taken first. step: steps decided so far, so that a
    decode's `base + step` is what it has computed. Decodes publish lazily, when somebody looks at their text.
    """

    __slots__ = ("plain", "queue", "root", "step", "writers")

    def __init__(self, usable: int, block_size: int) -> None:
        super().__init__(usable, block_size)
        self.plain = usable
        self.step = 0
        self.root = Text(None, 0, None)
        self.queue = Extent(None, 0, 0)  # sentinel of the ring of free extents
        self.writers: dict[Hashable, Request] = {}  # decodes by the key of their answer

    def take(self, n: int) -> None:
        self.free -= n
        if n <= self.plain:
            self.plain -= n
            return
        n -= self.plain
        self.plain = 0
        while n:
            extent = self.queue.after
            size = extent.hi - extent.lo
            if n < size:
                extent.hi -= n
                return
            n -= size
            _unlink(extent)
            node = extent.node
            assert node is not None
            node.extents.remove(extent)
            if not node.extents:
                self._prune(node)

    def open(self, request: Request) -> None:
        """Finds or makes the nodes of a new request's text."""
        node, position = self.root, 0
        nodes, ends = [], []
        for key, length in request.prompt:
            if length:
                node = self._child(node, position, key)
                position += length
                nodes.append(node)
                ends.append(position)
        nodes.append(self._child(node, position, request.output_key))
        for node in nodes:
            node.users += 1
        request.text = Path(nodes, ends)

    def close(self, request: Request) -> None:
        """The request has ended: nodes that nobody needs any more go."""
        path: Path = request.text
        for node in reversed(path.nodes):
            node.users -= 1
            if not node.users:
                self._prune(node)
        request.text = None

    def find_prefix(self, request: Request, tokens: int) -> Match:
        """Longest cached prefix in whole blocks of a request whose text has `tokens` tokens; one token at least is left."""
        size = self.block_size
        path: Path = request.text
        limit = (tokens - 1) // size
        match: Match = []
        index = 0
        for node, end in zip(path.nodes, [*path.ends, tokens], strict=True):
            if self.writers and node.key in self.writers:
                self.publish_decode(self.writers[node.key])
            last = min(end // size, limit)
            while index < last:
                found = node.find(index, last)
                if found is None:
                    return match
                extent, reached = found
                match.append((extent, index, reached))
                index = reached
        return match

    def unowned(self, match: Match) -> int:
        """Blocks of a match that would leave the free queue."""
        return sum(hi - lo for extent, lo, hi in match if not extent.references)

    def claim(self, request: Request, match: Match) -> None:
        """Makes `request` an owner of the blocks that it found."""
        path: Path = request.text
        path.owned.clear()
        path.published = 0
        for extent, lo, hi in match:
            while lo >= extent.hi:  # split a moment ago, when an earlier part of it was claimed
                assert extent.rest is not None
                extent = extent.rest
            if lo > extent.lo:
                extent = self._split(extent, lo)
            if hi < extent.hi:
                self._split(extent, hi)
            if not extent.references:
                _unlink(extent)
                self.free -= hi - lo
            extent.references += 1
            path.owned.append((extent, hi - lo))
            path.published = hi

    def publish(self, request: Request, tokens: int) -> None:
        """Makes the full blocks of the first `tokens` tokens findable."""
        size = self.block_size
        path: Path = request.text
        full = tokens // size
        index = path.published
        for node, end in zip(path.nodes, [*path.ends, tokens], strict=True):
            last = min(end // size, full)
            if index >= last:
                continue
            writer = self.writers.get(node.key)
            if writer is not None and writer is not request:
                self.publish_decode(writer)
            self._append(path, node, index, last)
            index = last
        path.published = max(index, path.published)

    def publish_decode(self, request: Request) -> None:
        """Catches up with a decode, whose full blocks have been findable since the steps that filled them."""
        self.publish(request, request.base + self.step)

    def release(self, request: Request, computed: int) -> None:
        self.publish(request, computed)
        path: Path = request.text
        hashed = 0
        for extent, blocks in reversed(path.owned):
            hashed += blocks
            pieces = [extent]
            blocks -= extent.hi - extent.lo
            while blocks:
                assert extent.rest is not None
                extent = extent.rest
                pieces.append(extent)
                blocks -= extent.hi - extent.lo
            for piece in reversed(pieces):
                piece.references -= 1
                if not piece.references:
                    self.free += piece.hi - piece.lo
                    _link_before(piece, self.queue)
        plain = -(-computed // self.block_size) - hashed
        self.plain += plain
        self.free += plain
        path.owned.clear()
        path.published = 0

    def _append(self, path: Path, node: Text, lo: int, hi: int) -> None:
        """Blocks lo..hi of `node` were filled by the owner of `path`."""
        if path.owned:
            extent, blocks = path.owned[-1]
            last = extent
            left = blocks - (last.hi - last.lo)
            while left:
                assert last.rest is not None
                last = last.rest
                left -= last.hi - last.lo
            # Growing keeps the order of publication only for the extent that stands last.
            if last.references == 1 and last.hi == lo and node.extents and node.extents[-1] is last:
                last.hi = hi
                path.owned[-1] = (extent, blocks + hi - lo)
                return
        extent = Extent(node, lo, hi)
        node.extents.append(extent)
        path.owned.append((extent, hi - lo))

    def _split(self, extent: Extent, at: int) -> Extent:
        """Cuts an extent in two; the deeper part is returned and, if both are free, evicted first."""
        deep = Extent(extent.node, at, extent.hi, extent.references)
        extent.hi = at
        deep.rest = extent.rest
        extent.rest = deep
        node = extent.node
        assert node is not None
        node.extents.insert(node.extents.index(extent) + 1, deep)
        if not extent.references:
            _link_before(deep, extent)
        return deep

    def _child(self, parent: Text, position: int, key: Hashable) -> Text:
        node = parent.children.get((position, key))
        if node is None:
            node = parent.children[(position, key)] = Text(parent, position, key)
        return node

    def _prune(self, node: Text) -> None:
        while node.parent is not None and not (node.users or node.extents or node.children):
            del node.parent.children[(node.start, node.key)]
            node = node.parent


def _unlink(extent: Extent) -> None:
    extent.before.after = extent.after
    extent.after.before = extent.before


def _link_before(extent: Extent, other: Extent) -> None:
    extent.before = other.before
    extent.after = other
    other.before.after = extent
    other.before = extent
