"""What prompts are made of: which parts they share, and which quote earlier answers.

A prompt is a list of segments `(content key, tokens)`; equal keys mean equal text. `input` lengths of a workload are
the part that is new with each request; shared prefixes and earlier turns come on top.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from scenarios.arrivals import NO_PAUSE, Pause, draw_pauses
from scenarios.fields import Section, ShortForm
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


def _alone(n: int) -> tuple[Ints, Ints, Ints]:
    nobody = np.full(n, -1, dtype=np.int64)
    return nobody, nobody.copy(), np.zeros(n, dtype=np.int64)


class Unique(Section):
    """Every prompt is a text of its own."""

    kind: Literal["unique"] = "unique"

    def lay_out(self, new: Ints, answers: Ints, turns: Ints, streams: Streams) -> Layout:
        return Layout(new, *_alone(len(new)))


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


class SharedPrefix(Prefixes):
    """A shared system prompt, then text of the request's own."""

    kind: Literal["shared_prefix"]

    def lay_out(self, new: Ints, answers: Ints, turns: Ints, streams: Streams) -> Layout:
        n = len(new)
        chosen, lengths = self.choose(n, streams)
        names = [f"sys:{k}" for k in range(self.num_prefixes)]
        keys = [""] * (2 * n)
        keys[0::2] = [names[k] for k in chosen.tolist()]
        keys[1::2] = [f"p{i}" for i in range(n)]
        tokens = np.column_stack([lengths[chosen], new]).reshape(-1)
        return Layout(lengths[chosen] + new, *_alone(n), np.arange(0, 2 * n + 1, 2, dtype=np.int64), keys, tokens)


class Sessions(Section):
    """Conversations: every turn repeats all that was said before and adds new text; a turn is sent when the answer to the
    one before has come and the person has thought. Arrivals are those of first turns.

    Args:
        turns: how many turns a conversation has.
        think_time: from an answer's end to the next turn.
        system: shared system prompts that conversations begin with; none if not given.
    """

    kind: Literal["sessions"]
    turns: Lengths
    think_time: Pause = NO_PAUSE
    system: Prefixes | None = None

    def lay_out(self, new: Ints, answers: Ints, turns: Ints, streams: Streams) -> Layout:
        """`turns`, `(sessions,)`, sums to the number of requests; rows are in order of session, then of turn."""
        n, sessions = len(new), len(turns)
        first = np.cumsum(turns) - turns
        session = np.repeat(np.arange(sessions, dtype=np.int64), turns)
        turn = np.arange(n, dtype=np.int64) - first[session]
        follows = np.where(turn > 0, np.arange(n, dtype=np.int64) - 1, -1)
        think = np.where(turn > 0, draw_pauses(self.think_time, n, streams("think")), 0)
        opening: list[tuple[str, int]] = []
        if self.system is not None:
            chosen, lengths = self.system.choose(sessions, streams)
            opening = [(f"sys:{k}", size) for k, size in zip(chosen.tolist(), lengths[chosen].tolist(), strict=True)]
        lead = 1 if opening else 0
        # Everything ever said in a session, in order: [system], new 0, answer 0, new 1, answer 1, ...; a turn's prompt is
        # a beginning of it.
        keys: list[str] = []
        tokens: list[int] = []
        asked, answered = new.tolist(), answers.tolist()
        for s, (row, count) in enumerate(zip(first.tolist(), turns.tolist(), strict=True)):
            said = [opening[s][0]] if opening else []
            sizes = [opening[s][1]] if opening else []
            for i in range(row, row + count):
                said.append(f"p{i}")
                sizes.append(asked[i])
                keys += said
                tokens += sizes
                said.append(f"out:{i}")
                sizes.append(answered[i])
        offset = np.concatenate([[0], np.cumsum(lead + 2 * turn + 1)]).astype(np.int64)
        flat = np.array(tokens, dtype=np.int64)
        total = np.add.reduceat(flat, offset[:-1]) if n else np.zeros(0, dtype=np.int64)
        return Layout(total, session, follows, think, offset, keys, flat)


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Prompts = Annotated[
    Unique | SharedPrefix | Sessions,
    Field(discriminator="kind"),
    BeforeValidator(_named),
    ShortForm({"enum": ["unique"]}),
]
