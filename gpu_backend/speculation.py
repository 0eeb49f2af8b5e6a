"""Speculative decoding on a real engine: who proposes drafts, and which of them stand."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gpu_backend.tokens import Tokens
from serving.request import Request


class Acceptance(Protocol):
    """Answers given beforehand, where the answers' text is forced (`sim.acceptance` has them)."""

    def accepted(self, request: Request, drafts: int) -> int:
        """How many of the drafts that are verified now stand."""

    def proposed(self, request: Request, outputs: int) -> int:
        """How many drafts are found once the request has so many answer tokens."""


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
