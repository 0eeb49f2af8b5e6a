"""Speculative decoding on a real engine: who proposes drafts, and which of them stand."""

from __future__ import annotations

import numpy as np

from gpu_backend.tokens import Tokens
from serving.config import EngineConfig
from serving.plan import Scheduled


def prompt_lookup(ids: Tokens, k: int, longest: int = 4, shortest: int = 2) -> Tokens:
    """N-gram drafts: what followed the last occurrence of the longest suffix that occurred before.

    Args:
        ids: prompt and answer so far `(n,)`. k: most drafts. longest, shortest: of the suffixes tried, longest first.

    Returns:
        int64 `(0..k,)`; empty if no suffix of at least `shortest` tokens occurred before.

    Source: prompt lookup decoding (Saxena 2023); vLLM's `prompt_lookup_min` and `prompt_lookup_max`.
    """
    n = len(ids)
    for size in range(min(longest, n - 1), shortest - 1, -1):
        starts = np.lib.stride_tricks.sliding_window_view(ids[:-1], size)
        found = np.flatnonzero((starts == ids[-size:]).all(axis=1))
        if len(found):
            after = int(found[-1]) + size
            return ids[after : after + k]
    return ids[:0]


def leading_matches(drafts: Tokens, picked: Tokens) -> int:
    """Drafts that stand when the target is greedy: those before the first that it would not have said itself."""
    wrong = np.flatnonzero(drafts != picked[: len(drafts)])
    return int(wrong[0]) if len(wrong) else len(drafts)


def one_further(rows: list[Scheduled], config: EngineConfig) -> list[Scheduled]:
    """The rows with which a draft model goes on from its own tokens: one token each, for those who sampled and have room in
    their blocks and in the window."""
    further = []
    for row in rows:
        end = row.context + row.tokens
        if row.samples and end < min(config.max_model_len, len(row.request.blocks) * config.block_size):
            further.append(Scheduled(row.request, 1, end, samples=True))
    return further


class NextToken:
    """The text of a request as far as a draft model's next pass reads it: the token it said last."""

    def __init__(self, token: int) -> None:
        self.token = np.array([token], dtype=np.int64)

    def row(self, context: int, tokens: int, drafts: int = 0) -> Tokens:
        """Called as `Text.row`; the token, whatever is asked for."""
        return self.token
