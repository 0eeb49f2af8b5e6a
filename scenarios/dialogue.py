"""A prompt as the application sees it, turn by turn, and what an application may leave out of it.

Pure functions of one prompt: the transforms of a scenario use them on every prompt before a run, the degradation ladder on
single ones while it runs.

A turn is what the user said, with the answers and tool results that came of it; it begins where a user text does. What stands
before the first turn is the system prompt. The last turn is the one that is being answered, and is never cut.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from scenarios.workload import Role
from serving.request import Segment

_SAID = (Role.USER, Role.HISTORY)


class Dialogue(NamedTuple):
    """A prompt: its segments, and what each of them is (a `Role`), both of one length."""

    segments: tuple[Segment, ...]
    roles: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens in self.segments)

    def only(self, keep: Sequence[bool]) -> Dialogue:
        """The segments at which `keep` is true."""
        kept = [i for i, kept in enumerate(keep) if kept]
        return Dialogue(tuple(self.segments[i] for i in kept), tuple(self.roles[i] for i in kept))


def turn_starts(roles: Sequence[int]) -> list[int]:
    """Positions at which the turns of a prompt begin; user texts in a row are one turn, unless earlier ones end there."""
    return [i for i, role in enumerate(roles) if role in _SAID and (i == 0 or roles[i - 1] != role)]


def drop_stale_turns(prompt: Dialogue, keep_last: int, above: int | None = None) -> Dialogue:
    """The prompt without its oldest turns: the last `keep_last` of those before the current one stay, and the system prompt.

    above: nothing is dropped while there are at most so many turns before the current one; and then so many that the next
        ones can be kept until there are that many again, so that the prompts between share their beginning. None: `keep_last`,
        which drops a turn with every new one.
    """
    starts = turn_starts(prompt.roles)
    earlier = len(starts) - 1
    most = keep_last if above is None else max(above, keep_last)
    if earlier <= most:
        return prompt
    # Turns are dropped `stride` at a time, so that it does not depend on what was dropped before.
    stride = most - keep_last + 1
    dropped = stride * -(-(earlier - most) // stride)
    first, last = starts[0], starts[min(dropped, earlier)]
    return prompt.only([not first <= i < last or role == Role.SYSTEM for i, role in enumerate(prompt.roles)])


def trim_tool_results(
    prompt: Dialogue, tokens: int | None = None, keep_last: int | None = None, stub_tokens: int = 0
) -> Dialogue:
    """The prompt with shorter tool results.

    tokens: no result is longer than this: its first tokens stay. The beginning of later prompts stays what it was.
    keep_last: results before the last so many are cleared to `stub_tokens`. What was cached behind them is lost.
    """
    tools = [i for i, role in enumerate(prompt.roles) if role == Role.TOOL]
    kept = tools if keep_last is None else tools[max(0, len(tools) - keep_last) :]
    cleared = set(tools) - set(kept)
    segments: list[Segment] = []
    for i, (key, size) in enumerate(prompt.segments):
        if i in cleared:
            # A stub is a text of its own, the same for all results.
            segments.append((key, size) if size <= stub_tokens else ("cleared", stub_tokens))
        elif prompt.roles[i] == Role.TOOL and tokens is not None:
            segments.append((key, min(size, tokens)))
        else:
            segments.append((key, size))
    trimmed = Dialogue(tuple(segments), prompt.roles)
    return trimmed.only([size > 0 for _, size in segments])


def quote_what_was_said(prompt: Dialogue, answers: Mapping[Hashable, int]) -> Dialogue:
    """The prompt with quoted answers no longer than they became. answers: by content key, tokens, of those that were cut short."""
    segments = tuple((key, min(size, answers.get(key, size))) for key, size in prompt.segments)
    return Dialogue(segments, prompt.roles).only([size > 0 for _, size in segments])


def cap_output(max_tokens: int, cap: int) -> int:
    """What a client declares that is held to `cap` answer tokens."""
    return min(max_tokens, cap)


def break_prefix(prompt: Dialogue, key: Hashable, tokens: int, at: int = 0) -> Dialogue:
    """The prompt with a text `key` of `tokens` tokens in its system prompt, behind the first `at` tokens of it: a date, a name.

    Without a system prompt it stands before everything.
    """
    segments: list[Segment] = []
    roles: list[int] = []
    before, done = at, False
    for (k, size), role in zip(prompt.segments, prompt.roles, strict=True):
        if not done and (role != Role.SYSTEM or before < size):
            head = before if role == Role.SYSTEM else 0
            if head:
                segments.append((k, head))
                roles.append(role)
            segments.append((key, tokens))
            roles.append(Role.SYSTEM)
            # `(k, n)` means the first tokens of k, so the rest of a text has a name of its own.
            k, size, done = (f"{k}@{head}", size - head, True) if head else (k, size, True)
        before -= size
        segments.append((k, size))
        roles.append(role)
    if not done:
        segments.append((key, tokens))
        roles.append(Role.SYSTEM)
    return Dialogue(tuple(segments), tuple(roles))


def stabilise(prompt: Dialogue, reach: Mapping[Hashable, int]) -> Dialogue:
    """The prompt with a system prompt that begins with what most prompts share.

    reach: of each key in a system prompt: 2 where other conversations have it too, 1 where only the conversation's other prompts
        do, 0 where no other prompt does. What reaches no further than its conversation goes behind what all share; what no other
        prompt has goes to the very end.
    """

    def part(of: int) -> Dialogue:
        system = zip(*prompt, strict=True)
        return prompt.only([role == Role.SYSTEM and reach.get(key, 2) == of for (key, _), role in system])

    rest = prompt.only([role != Role.SYSTEM for role in prompt.roles])
    parts = (part(2), part(1), rest, part(0))
    return Dialogue(sum((p.segments for p in parts), ()), sum((p.roles for p in parts), ()))
