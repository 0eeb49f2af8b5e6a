"""What every kind of prompt is laid out with: columns of segments, shared system prompts, earlier answers.

A prompt is a list of segments `(content key, tokens)`; equal keys mean equal text.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from scenarios.arrivals import NO_PAUSE, Pause
from scenarios.fields import Section
from scenarios.history import EXACT, History
from scenarios.lengths import Lengths

Ints = NDArray[np.int64]
Streams = Callable[[str], Generator]


@dataclass
class Layout:
    """Prompts of n requests, in columns: see `scenarios.workload.Workload` for their meaning."""

    prompt_tokens: Ints
    session: Ints
    follows: Ints
    think_ns: Ints
    segment_offset: Ints | None = None
    segment_keys: list[str] | None = None
    segment_tokens: Ints | None = None
    segment_role: NDArray[np.int8] | None = None
    joins: Ints | None = None


@dataclass
class Segments:
    """Segments of prompts, written one prompt after the other."""

    keys: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])

    def prompt(self, keys: Sequence[str], tokens: Sequence[int], roles: Sequence[int]) -> None:
        """Appends the next prompt."""
        self.keys += keys
        self.tokens += tokens
        self.roles += roles
        self.ends.append(len(self.keys))

    def layout(self, session: Ints, follows: Ints, think_ns: Ints, joins: Ints | None = None) -> Layout:
        offset = np.array(self.ends, dtype=np.int64)
        flat = np.array(self.tokens, dtype=np.int64)
        total = np.add.reduceat(flat, offset[:-1]) if len(offset) > 1 else np.zeros(0, dtype=np.int64)
        role = np.array(self.roles, dtype=np.int8)
        return Layout(total, session, follows, think_ns, offset, self.keys, flat, role, joins)


class Prefixes(Section):
    """System prompts that requests share. Prefix k (1, 2, ...) is chosen with a chance proportional to 1 / k ** zipf."""

    num_prefixes: int = Field(default=1, ge=1, le=1_000_000)
    prefix_tokens: Lengths
    zipf: float = Field(default=1.0, ge=0, le=20)

    def choose(self, n: int, streams: Streams) -> tuple[Ints, Ints]:
        """For n prompts: which prefix, `(n,)`, and how long every prefix is, `(num_prefixes,)`."""
        lengths = self.prefix_tokens.draw(self.num_prefixes, streams("prefixes"))
        weights = np.cumsum(1.0 / np.arange(1, self.num_prefixes + 1) ** self.zipf)
        chosen = np.searchsorted(weights, streams("prompts").random(n) * weights[-1], side="right")
        return chosen.astype(np.int64), lengths

    def opening(self, n: int, streams: Streams) -> list[tuple[str, int]]:
        """The system prompt that each of n conversations begins with: key and tokens."""
        chosen, lengths = self.choose(n, streams)
        return [(f"sys:{k}", size) for k, size in zip(chosen.tolist(), lengths[chosen].tolist(), strict=True)]


class Conversations(Section):
    """What conversations of any kind have: requests that quote the answers to earlier ones, and wait for them.

    Args:
        think_time: from an answer's end to the next turn of a person.
        system: shared system prompts that conversations begin with; none if not given.
        history: how much of an answer comes back unchanged in later prompts.
    """

    later: ClassVar[tuple[str, ...]] = ("history",)

    think_time: Pause = NO_PAUSE
    system: Prefixes | None = None
    history: History = EXACT

    @abstractmethod
    def sizes(self, n: int, streams: Streams) -> Ints:
        """Requests of each of n conversations, `(n,)`. The first of them do not depend on n."""
