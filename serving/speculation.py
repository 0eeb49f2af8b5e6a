"""Speculative decoding as the scheduler sees it: how many drafts to ask for, and what they take beside their own tokens.

The text of drafts lives in the engine that proposes and verifies them; here they are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serving.config import EngineConfig


@dataclass(frozen=True)
class Method:
    """Who proposes drafts.

    input_slots: rows of a step that proposing takes for every request in it, out of the token budget.
    lookahead: drafts have KV of their own before they are verified, so blocks for them are taken a step early.
    """

    input_slots: int = 0
    lookahead: bool = False


MOST_DRAFTS = 16
"""Most drafts at a time: far beyond what pays, and what the kernels verify in one pass."""

METHODS: dict[str, Method] = {
    "none": Method(),
    "ngram": Method(),  # looked up in the request's own text
    "draft": Method(input_slots=1, lookahead=True),  # a smaller model says them
}


class Speculation:
    """The rules that an engine's settings come to. k: drafts proposed at a time, 0 without speculation. input_slots, lookahead:
    of the method, lookahead in tokens."""

    def __init__(self, config: EngineConfig) -> None:
        method = METHODS[config.speculation]
        self.k = config.num_speculative_tokens if config.speculation != "none" else 0
        self.input_slots = method.input_slots
        self.lookahead = self.k if method.lookahead else 0
        self.off_above = config.speculation_off_above
        self.max_model_len = config.max_model_len

    def wanted(self, running: int) -> int:
        """Drafts to ask for while `running` requests run: a busy device has no time to spare for them."""
        return 0 if 0 < self.off_above < running else self.k

    def padding(self, tokens: int, hit_tokens: int, decodes_alone: bool, anything_runs: bool) -> int:
        """Dummy drafts of an admission that would compute one token: steps of equal rows run as one captured graph.

        Args:
            tokens: of the request; hit_tokens: those found in the prefix cache.
            decodes_alone: no request that ran before has a prompt's chunk in this step. anything_runs: one that ran has a row.
        """
        if not self.k or self.off_above or tokens - hit_tokens != 1:
            return 0
        uniform = decodes_alone and (anything_runs or hit_tokens > 0)
        return self.k if uniform and tokens + self.k <= self.max_model_len else 0
