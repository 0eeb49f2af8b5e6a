"""Prefix cache for the simulator: the same decisions as `serving.block_pool`, in runs of blocks instead of block by block.

Two facts make this exact. Free blocks without a hash go to the head of the free queue and are alike, so a counter holds them.
Free blocks with a hash lie in the queue in the order in which their owners ended, each owner's deepest block first, so they
form runs that are eaten from their deep end.

Text is a tree: a `Text` node is one segment in its context (what stood before it, and where it begins), so two prompts
share a node exactly as far as they are equal, and a cached block is `(node of its last token, its index)`.
"""

from __future__ import annotations

from collections.abc import Hashable

from serving.request import Request


class Extent:
    """Blocks `lo..hi` of a text that lie in memory once, share their owners, and are queued together when nobody owns them.

    `rest` continues a run that was split after somebody noted it down; `before`/`after` link the free queue.
    """

    __slots__ = ("after", "before", "hi", "lo", "node", "references", "rest")

    rest: Extent | None
    before: Extent
    after: Extent

    def __init__(self, node: Text, lo: int, hi: int, references: int = 1) -> None:
        self.node = node
        self.lo = lo
        self.hi = hi
        self.references = references
        self.rest = None


class Text:
    """A segment in its context. `extents`: its cached blocks; of equal blocks the one published first stands first.
    `users`: requests that have not ended whose text leads through it."""

    __slots__ = ("children", "extents", "key", "parent", "start", "users")

    def __init__(self, parent: Text | None, start: int, key: Hashable) -> None:
        self.parent = parent
        self.start = start  # position of its first token in the whole text
        self.key = key
        self.children: dict[tuple[int, Hashable], Text] | None = None  # most have none
        self.extents: list[Extent] = []
        self.users = 0

    def child(self, position: int, key: Hashable) -> Text:
        """The segment `key` that follows at `position`; made if nobody has asked for it before."""
        children = self.children
        if children is None:
            children = self.children = {}
        node = children.get((position, key))
        if node is None:
            node = children[position, key] = Text(self, position, key)
        return node

    def find(self, index: int, end: int) -> tuple[Extent, int] | None:
        """The cached block `index` published first, and how far (at most `end`) its extent leads; None if not cached."""
        for extent in self.extents:
            if extent.lo <= index < extent.hi:
                return extent, min(end, extent.hi)
            if index < extent.lo < end:
                end = extent.lo  # from there on this earlier copy is the one to be found
        return None


class Path:
    """A request's text as nodes, and the runs of hashed blocks that it owns, shallow to deep: `(extent, blocks)`.

    nodes, ends: of the prompt, with the position after each node's last token. answer: key of what follows; its node joins
    `nodes` (without an end) when its first block is full.
    """

    __slots__ = ("answer", "ends", "nodes", "owned", "published")

    def __init__(self, nodes: list[Text], ends: list[int], answer: Hashable) -> None:
        self.nodes = nodes
        self.ends = ends
        self.answer = answer
        self.owned: list[tuple[Extent, int]] = []
        self.published = 0


Match = list[tuple[Extent, int, int]]
"""Cached blocks of a prefix: `(extent, first, after last)` block indices, shallow to deep."""


class PrefixExtents:
    """KV blocks by the text in them. The scheduler counts the free ones; here it is known which of them are worth keeping.

    plain: free blocks without a hash, which are taken first. step: steps decided so far, so that a decode's `base + step` is
    what it has computed and is known. Decodes publish lazily: when somebody looks at their text, and when they end.
    """

    __slots__ = ("block_size", "plain", "queue", "root", "step", "writers")

    def __init__(self, usable: int, block_size: int) -> None:
        self.block_size = block_size
        self.plain = usable
        self.step = 0
        self.root = Text(None, 0, None)
        self.queue = queue = Extent(self.root, 0, 0)  # sentinel of the ring of free extents
        queue.before = queue.after = queue
        self.writers: dict[Hashable, Request] = {}  # decodes by the key of their answer

    def take(self, n: int) -> None:
        """n blocks leave the free queue: plain ones, then those that have been free for longest."""
        if n <= self.plain:
            self.plain -= n
            return
        n -= self.plain
        self.plain = 0
        queue = self.queue
        while n:
            extent = queue.after
            size = extent.hi - extent.lo
            if n < size:
                extent.hi -= n
                return
            n -= size
            after = queue.after = extent.after
            after.before = queue
            node = extent.node
            node.extents.remove(extent)
            if not (node.users or node.extents or node.children):
                self._prune(node)

    def open(self, request: Request) -> None:
        """Finds or makes the nodes of a new request's text."""
        node, position = self.root, 0
        nodes: list[Text] = []
        ends: list[int] = []
        for key, length in request.prompt:
            if length:
                node = node.child(position, key)
                node.users += 1
                position += length
                nodes.append(node)
                ends.append(position)
        request.text = Path(nodes, ends, request.output_key)

    def close(self, request: Request) -> None:
        """The request has ended: nodes that nobody needs any more go."""
        path: Path = request.text
        for node in reversed(path.nodes):
            node.users -= 1
            if not (node.users or node.extents or node.children):
                self._prune(node)
        request.text = None

    def find_prefix(self, request: Request, tokens: int) -> Match:
        """Longest cached prefix in whole blocks of a request whose text has `tokens` tokens; one token at least is left."""
        size = self.block_size
        path: Path = request.text
        limit = (tokens - 1) // size
        match: Match = []
        ends = path.ends
        if request.num_outputs:  # it was preempted, and looks for its answer too
            if len(path.nodes) == len(ends):
                self._answer(path)
            ends = [*ends, tokens]
        index = 0
        for node, end in zip(path.nodes, ends, strict=False):
            if node.key in self.writers:
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

    def claim(self, request: Request, match: Match) -> int:
        """Makes `request` an owner of the blocks that it found; returns how many of them leave the free queue by that."""
        path: Path = request.text
        claimed = 0
        for extent, lo, hi in match:
            while lo >= extent.hi:  # split a moment ago, when an earlier part of it was claimed
                assert extent.rest is not None
                extent = extent.rest
            if lo > extent.lo:
                extent = self._split(extent, lo)
            if hi < extent.hi:
                self._split(extent, hi)
            if not extent.references:
                extent.before.after = extent.after
                extent.after.before = extent.before
                claimed += hi - lo
            extent.references += 1
            path.owned.append((extent, hi - lo))
            path.published = hi
        return claimed

    def publish(self, request: Request, tokens: int) -> None:
        """Makes the full blocks of the first `tokens` tokens findable."""
        path: Path = request.text
        index, full = path.published, tokens // self.block_size
        if index >= full:
            return
        nodes, ends = path.nodes, path.ends
        for i, end in enumerate(ends):
            last = end // self.block_size
            if index < last:
                if last > full:
                    last = full
                self._append(request, path, nodes[i], index, last)
                index = last
        if index < full:  # the answer has no end
            if len(nodes) == len(ends):
                self._answer(path)
            self._append(request, path, nodes[-1], index, full)
        path.published = full

    def publish_decode(self, request: Request) -> None:
        """Catches up with a decode, whose full blocks have been findable since the steps that filled them."""
        self.publish(request, request.base + self.step)

    def release(self, request: Request, computed: int, known: int | None = None) -> int:
        """A request that holds the blocks of `computed` tokens gives them back; returns how many are free by that. Blocks are
        hashed as far as the text is known (None: all of it)."""
        self.publish(request, computed if known is None else known)
        path: Path = request.text
        owned, queue = path.owned, self.queue
        plain = -(-computed // self.block_size)  # all of its blocks but the hashed ones
        freed = 0
        for extent, blocks in reversed(owned):
            plain -= blocks
            pieces = (extent,) if blocks == extent.hi - extent.lo else _pieces(extent, blocks)
            for piece in pieces:
                piece.references -= 1
                if not piece.references:
                    freed += piece.hi - piece.lo
                    before = piece.before = queue.before
                    piece.after = queue
                    before.after = queue.before = piece
        self.plain += plain
        owned.clear()
        path.published = 0
        return freed + plain

    def _append(self, request: Request, path: Path, node: Text, lo: int, hi: int) -> None:
        """Blocks lo..hi of `node` were filled by the owner of `path`."""
        writer = self.writers.get(node.key)
        if writer is not None and writer is not request:
            self.publish_decode(writer)
        owned, extents = path.owned, node.extents
        if owned and extents:
            extent, blocks = owned[-1]
            last = extent if blocks == extent.hi - extent.lo else _pieces(extent, blocks)[0]
            # Growing keeps the order of publication only for the extent that stands last.
            if last.references == 1 and last.hi == lo and extents[-1] is last:
                last.hi = hi
                owned[-1] = (extent, blocks + hi - lo)
                return
        extent = Extent(node, lo, hi)
        extents.append(extent)
        owned.append((extent, hi - lo))

    def _answer(self, path: Path) -> None:
        """The answer of a path becomes findable."""
        node = path.nodes[-1].child(path.ends[-1], path.answer)
        node.users += 1
        path.nodes.append(node)

    def _split(self, extent: Extent, at: int) -> Extent:
        """Cuts an extent in two; the deeper part is returned and, if both are free, evicted first."""
        deep = Extent(extent.node, at, extent.hi, extent.references)
        extent.hi = at
        deep.rest = extent.rest
        extent.rest = deep
        extents = extent.node.extents
        extents.insert(extents.index(extent) + 1, deep)
        if not extent.references:
            _link_before(deep, extent)
        return deep

    def _prune(self, node: Text) -> None:
        """Forgets a node without users, blocks and children, and its parents as far as they were there for it alone."""
        parent = node.parent
        while parent is not None:
            assert parent.children is not None
            del parent.children[node.start, node.key]
            if parent.users or parent.extents or parent.children:
                return
            node, parent = parent, parent.parent


def _pieces(extent: Extent, blocks: int) -> list[Extent]:
    """What a run of `blocks` blocks has been split into, deep to shallow."""
    pieces = [extent]
    blocks -= extent.hi - extent.lo
    while blocks:
        assert extent.rest is not None
        extent = extent.rest
        pieces.append(extent)
        blocks -= extent.hi - extent.lo
    pieces.reverse()
    return pieces


def _link_before(extent: Extent, other: Extent) -> None:
    before = extent.before = other.before
    extent.after = other
    before.after = other.before = extent
