"""Where a step lies outside what a profile's measurements cover, and by how much."""

from __future__ import annotations

from typing import NamedTuple

from serving.plan import StepShape
from sim.profile_parts import Domain


class Outside(NamedTuple):
    """One part of a shape beyond the smallest or largest value that was measured."""

    part: str
    value: float
    low: float
    high: float

    @property
    def factor(self) -> float:
        """How many times beyond: 2.0 is twice the largest, or half the smallest, value measured."""
        if self.value > self.high:
            return self.value / max(self.high, 1.0)
        return self.low / max(self.value, 1.0)

    def __str__(self) -> str:
        if self.value > self.high:
            times = f" ({self.factor:.1f}x)" if self.high else ""
            return f"{self.part} {self.value:.0f} is above the measured {self.high:.0f}{times}"
        return f"{self.part} {self.value:.0f} is below the measured {self.low:.0f}"


def outside(shape: StepShape, domain: Domain, *, mean: bool = False) -> list[Outside]:
    """The parts of a shape that lie outside a domain of step shapes, none twice.

    mean: whether the domain's `decode_context` is the mean of a step's decodes, and not their sum. A step without tokens, as
    asynchronous scheduling decides them, costs nothing and lies nowhere.
    """
    if not shape.tokens:
        return []
    context: float = shape.decode_context
    if mean and shape.decode_sequences:
        context /= shape.decode_sequences
    spans = [
        ("tokens", shape.tokens, domain.tokens.min, domain.tokens.max),
        ("decode_sequences", shape.decode_sequences, 0, domain.decode_sequences.max),
        ("mean decode context" if mean else "decode_context", context, 0, domain.decode_context.max),
        ("sampled", shape.sampled, 0, domain.sampled.max),
    ]
    query_least, query_most = domain.prefill_query.min, domain.prefill_query.max
    context_most = domain.prefill_context.max
    for query, context in shape.prefill:
        spans.append(("prefill query", query, query_least, query_most))
        spans.append(("prefill context", context, 0, context_most))
    # Asked of thousands of steps, nearly all of them inside: only what is outside becomes an object.
    return [
        Outside(part, value, low, high) for part, value, low, high in dict.fromkeys(spans) if not low <= value <= high
    ]


def in_words(parts: list[Outside]) -> str | None:
    """The same as a sentence; None inside."""
    return "; ".join(str(part) for part in parts) or None
