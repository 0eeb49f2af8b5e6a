"""How much of an answer comes back unchanged when a later prompt quotes it: what of its KV can be found again.

An answer of request i is the text `out:i`. What comes back as other tokens is a text of another name, so that no cache takes one
for the other, and what stands behind it is never found either: a prefix ends where it first differs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from scenarios.fields import Section, ShortForm

Quoted = list[tuple[str, int]]
"""Segments: content key and tokens."""


class Exact(Section):
    """An answer comes back as the tokens that were sampled: clients that keep token ids, and templates that keep the text."""

    kind: Literal["exact"] = "exact"

    def quote(self, row: int, tokens: int, *, earlier_turn: bool = True) -> Quoted:
        """How a prompt quotes the answer to request `row`. earlier_turn: a person has spoken since."""
        return [(f"out:{row}", tokens)]


class Retokenised(Section):
    """An answer comes back as the same text but other tokens: servers that take text tokenise it again, and a tokenizer
    does not always write a text as the model did.

    Args:
        intact: the share of an answer, from its beginning, that comes back as it was. 0, the default, is the worst case: it
            differs from its first token on. There is no measured default; it depends on tokenizer and text.
    """

    kind: Literal["retokenised"]
    intact: float = Field(default=0.0, ge=0, le=1)

    def quote(self, row: int, tokens: int, *, earlier_turn: bool = True) -> Quoted:
        kept = int(self.intact * tokens)
        parts = [(f"out:{row}", kept), (f"ret:{row}", tokens - kept)]
        return [(key, size) for key, size in parts if size]


class ReasoningStripped(Section):
    """Reasoning is not sent back once a person has spoken again: chat templates of reasoning models keep it only while
    tools are called for the same question (those of Qwen3 and gpt-oss do). The final part stands where the reasoning stood, so
    a prompt differs from what is cached from the answer's first token on.

    Args:
        reasoning: the share of an answer that is reasoning. The default is an assumption.
    """

    kind: Literal["reasoning_stripped"]
    reasoning: float = Field(default=0.5, gt=0, lt=1)

    def quote(self, row: int, tokens: int, *, earlier_turn: bool = True) -> Quoted:
        if not earlier_turn:
            return [(f"out:{row}", tokens)]
        return [(f"fin:{row}", max(1, tokens - int(self.reasoning * tokens)))]


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


History = Annotated[
    Exact | Retokenised | ReasoningStripped,
    Field(discriminator="kind"),
    BeforeValidator(_named),
    ShortForm({"enum": ["exact", "retokenised", "reasoning_stripped"]}),
]
EXACT = Exact()
PIECES = ("out", "ret", "fin")
"""What content keys of quoted answers begin with."""


def row_of(key: Hashable) -> int | None:
    """The request whose answer a prompt quotes by this content key; None of any other text."""
    kind, colon, row = key.partition(":") if isinstance(key, str) else ("", "", "")
    return int(row) if colon and kind in PIECES and row.isdecimal() else None


def shorter(pieces: Mapping[str, int], came: int, whole: int) -> dict[str, int]:
    """The pieces by which one prompt quotes an answer, when only `came` of its `whole` tokens came out.

    pieces: tokens by kind, `out` (as it was), `ret` (the same text in other tokens), `fin` (without its reasoning).
    """
    intact, other = pieces.get("out", 0), pieces.get("ret", 0)
    kept = min(intact, came if not other else intact * came // (intact + other))
    found = {"out": kept, "ret": min(other, came - kept), "fin": -(-pieces.get("fin", 0) * came // whole)}
    return {kind: found[kind] for kind in pieces}
