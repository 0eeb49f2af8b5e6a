"""The text behind content keys: token ids drawn from the key alone, so that equal prefixes are equal on hardware too."""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from serving.request import Request

Tokens = NDArray[np.int64]


def draw_tokens(key: Hashable, n: int, vocab_size: int) -> Tokens:
    """The first n tokens of the text called `key`, int64 `(n,)` in [0, vocab_size).

    Fewer tokens of a text are a prefix of more. Keys name a text by their `repr`, as block hashes do.
    """
    seed = int.from_bytes(blake2b(repr(key).encode(), digest_size=16).digest(), "little")
    words = np.random.Philox(key=seed).random_raw((n + 1) // 2).view(np.uint32)[:n]
    return ((words.astype(np.uint64) * np.uint64(vocab_size)) >> np.uint64(32)).astype(np.int64)


class Text:
    """Token ids of one request: its prompt, and its answer as far as it was asked for (forced answers)."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        self.request = request
        self.vocab_size = vocab_size
        self.prompt_tokens = request.prompt_tokens
        # An answer that nobody can quote is still a text of its own.
        self.answer_key = ("answer", request.index) if request.output_key is None else request.output_key
        prompt = [draw_tokens(key, n, vocab_size) for key, n in request.prompt]
        self.ids: Tokens = np.concatenate(prompt) if prompt else np.empty(0, dtype=np.int64)

    def first(self, n: int) -> Tokens:
        """The first n token ids; a view, valid until more are asked for."""
        if n > len(self.ids):
            # Twice as far as needed: an answer of m tokens is drawn log m times.
            answer = draw_tokens(self.answer_key, 2 * (n - self.prompt_tokens) + 62, self.vocab_size)
            self.ids = np.concatenate([self.ids[: self.prompt_tokens], answer])
        return self.ids[:n]
