"""What prompts are made of: which parts they share, and which quote earlier answers.

A prompt is a list of segments `(content key, tokens)`; equal keys mean equal text. `input` lengths of a workload are
the part that is new with each request; shared prefixes and earlier turns come on top.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from scenarios.agents import Agents
from scenarios.arrivals import draw_pauses
from scenarios.fields import Section, ShortForm
from scenarios.layouts import Conversations, Ints, Layout, Prefixes, Segments, Streams
from scenarios.lengths import Lengths
from scenarios.workload import Role


def _alone(n: int) -> tuple[Ints, Ints, Ints]:
    nobody = np.full(n, -1, dtype=np.int64)
    return nobody, nobody.copy(), np.zeros(n, dtype=np.int64)


class Unique(Section):
    """Every prompt is a text of its own."""

    kind: Literal["unique"] = "unique"

    def lay_out(self, new: Ints, answers: Ints, turns: Ints, streams: Streams) -> Layout:
        return Layout(new, *_alone(len(new)))


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
        roles = np.tile(np.array([Role.SYSTEM, Role.USER], dtype=np.int8), n)
        offset = np.arange(0, 2 * n + 1, 2, dtype=np.int64)
        return Layout(lengths[chosen] + new, *_alone(n), offset, keys, tokens, roles)


class Sessions(Conversations):
    """Conversations: every turn repeats all that was said before and adds new text; a turn is sent when the answer to the
    one before has come and the person has thought. Arrivals are those of first turns.

    Args:
        turns: how many turns a conversation has.
        think_time: from an answer's end to the next turn.
        system: shared system prompts that conversations begin with; none if not given.
        history: how much of an answer comes back unchanged in the next turn's prompt.
    """

    kind: Literal["sessions"]
    turns: Lengths

    def sizes(self, n: int, streams: Streams) -> Ints:
        return self.turns.draw(n, streams("turns"))

    def lay_out(self, new: Ints, answers: Ints, turns: Ints, streams: Streams) -> Layout:
        """`turns`, `(sessions,)`, sums to the number of requests; rows are in order of session, then of turn."""
        n, sessions = len(new), len(turns)
        first = np.cumsum(turns) - turns
        session = np.repeat(np.arange(sessions, dtype=np.int64), turns)
        turn = np.arange(n, dtype=np.int64) - first[session]
        follows = np.where(turn > 0, np.arange(n, dtype=np.int64) - 1, -1)
        think = np.where(turn > 0, draw_pauses(self.think_time, n, streams("think")), 0)
        opening = [] if self.system is None else self.system.opening(sessions, streams)
        segments = Segments()
        asked, answered = new.tolist(), answers.tolist()
        for s, (row, count) in enumerate(zip(first.tolist(), turns.tolist(), strict=True)):
            # Everything ever said in a session, in order: [system], new 0, answer 0, new 1, answer 1, ...; a turn's prompt
            # is a beginning of it.
            said = [opening[s][0]] if opening else []
            sizes = [opening[s][1]] if opening else []
            roles: list[int] = [Role.SYSTEM] if opening else []
            for i in range(row, row + count):
                said.append(f"p{i}")
                sizes.append(asked[i])
                segments.prompt(said, sizes, [*roles, Role.USER])
                roles.append(Role.HISTORY)
                for key, size in self.history.quote(i, answered[i]):
                    said.append(key)
                    sizes.append(size)
                    roles.append(Role.ANSWER)
        return segments.layout(session, follows, think)


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Prompts = Annotated[
    Unique | SharedPrefix | Sessions | Agents,
    Field(discriminator="kind"),
    BeforeValidator(_named),
    ShortForm({"enum": ["unique"]}),
]
