"""What has been said so far to a model that is asked again and again, and how a prompt repeats it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scenarios.history import Exact, ReasoningStripped, Retokenised
from scenarios.layouts import Segments
from scenarios.workload import Role


class Said(NamedTuple):
    """A piece of a context: a text of its own, or the answer to request `row` (then `key` is empty and `row` is 0 or more).

    turn: of the person, in which it was said; -1 for an answer that is over wherever it is quoted.
    """

    key: str
    row: int
    tokens: int
    role: Role
    turn: int


def write_prompt(
    segments: Segments,
    context: Sequence[Said],
    turn: int,
    history: Exact | Retokenised | ReasoningStripped,
    size: Callable[[Said], int] = lambda said: said.tokens,
) -> None:
    """Appends the prompt that repeats a context in a turn of the person. size: tokens of a piece; those without any are left out."""
    keys: list[str] = []
    tokens: list[int] = []
    roles: list[int] = []
    for said in context:
        role = Role.HISTORY if said.role == Role.USER and said.turn < turn else said.role
        whole = size(said)
        pieces = [(said.key, whole)] if said.row < 0 else history.quote(said.row, whole, earlier_turn=said.turn < turn)
        for key, part in pieces:
            if part:
                keys.append(key)
                tokens.append(part)
                roles.append(role)
    segments.prompt(keys, tokens, roles)
