"""KV memory without pages: a request reserves consecutive blocks for the longest text that it may become, before it starts.

What engines did before PagedAttention (Kwon et al., SOSP 2023), here to show what it costs: what is reserved and never written
(internal fragmentation), and free blocks that no request can use since no hole is wide enough (external fragmentation).
Nothing is shared, and nothing is ever preempted. A hole is chosen by first fit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from serving.config import EngineConfig
from serving.request import Request


class ContiguousPool:
    """The interface of `serving.block_pool.BlockPool`; ids are 1..usable. holes: (first block, blocks) of free ones, by place."""

    caching = False

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.block_size = config.block_size
        self.holes: list[tuple[int, int]] = [(1, config.usable_blocks)]
        self.free_blocks = config.usable_blocks

    @property
    def largest_hole(self) -> int:
        """Blocks of the widest hole."""
        return max((width for _, width in self.holes), default=0)

    @property
    def stranded_blocks(self) -> int:
        """Free blocks outside of it."""
        return self.free_blocks - self.largest_hole

    def find_prefix(self, request: Request) -> list[int]:
        """Nothing: there is no cache."""
        return []

    def lead(self, request: Request, tokens: int) -> bytes | None:
        return None

    def blocks_needed(self, request: Request, tokens: int, hits: Sequence[int] = ()) -> int:
        """Blocks that `request` must reserve; more than there are where no hole is wide enough."""
        if request.blocks:
            return 0
        width = self._width(request)
        return width if width <= self.largest_hole else self.config.usable_blocks + 1

    def allocate(self, request: Request, tokens: int, hits: Sequence[int] = ()) -> bool:
        """Reserves the first hole that is wide enough, or changes nothing and returns False."""
        if request.blocks:
            return tokens <= len(request.blocks) * self.block_size
        width = self._width(request)
        for i, (start, free) in enumerate(self.holes):
            if free >= width:
                self.holes[i : i + 1] = [(start + width, free - width)] if free > width else []
                self.free_blocks -= width
                request.blocks = list(range(start, start + width))
                return True
        return False

    def publish(self, request: Request, tokens: int) -> None:
        """Nothing is found again."""

    def open(self, request: Request, hits: Sequence[int] = ()) -> None:
        """Prepares an empty block table."""
        request.blocks = []
        request.published = 0

    def free(self, request: Request) -> None:
        """Takes the reserved blocks back; holes that touch become one."""
        if not request.blocks:
            return
        insort(self.holes, (request.blocks[0], len(request.blocks)))
        self.free_blocks += len(request.blocks)
        request.blocks = []
        joined: list[tuple[int, int]] = []
        for start, width in self.holes:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + width)
            else:
                joined.append((start, width))
        self.holes = joined

    def _width(self, request: Request) -> int:
        """Blocks for its longest answer, and for drafts: what `EngineConfig.why_it_can_never_run` asks an empty engine for."""
        config = self.config
        tokens = min(request.prompt_tokens + request.max_tokens, config.max_model_len) - 1
        return -(-min(tokens + config.draft_room, config.max_model_len) // config.block_size)
