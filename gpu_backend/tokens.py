"""The text behind content keys: token ids drawn from the key alone, so that equal prefixes are equal on hardware too."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import NamedTuple

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


_NONE: Tokens = np.empty(0, dtype=np.int64)


class KnownText(NamedTuple):
    """A content key that carries its own token ids: a prompt that somebody really wrote."""

    ids: tuple[int, ...]


def text_of(key: Hashable, n: int, vocab_size: int) -> Tokens:
    """The first n tokens of the text called `key`: its own, or drawn ones.

    Raises:
        ValueError: the text is shorter, or not of this vocabulary.
    """
    if not isinstance(key, KnownText):
        return draw_tokens(key, n, vocab_size)
    if len(key.ids) < n or max(key.ids) >= vocab_size or min(key.ids) < 0:
        raise ValueError(f"a text of {len(key.ids)} tokens for {n}; ids must be in [0, {vocab_size})")
    return np.array(key.ids[:n], dtype=np.int64)


class Text:
    """Token ids of one request: its prompt, and its answer: as far as it was asked for where answers are forced, else what was
    appended."""

    def __init__(self, request: Request, vocab_size: int) -> None:
        self.request = request
        self.vocab_size = vocab_size
        self.prompt_tokens = request.prompt_tokens
        # An answer that nobody can quote is still a text of its own.
        self.answer_key = ("answer", request.index) if request.output_key is None else request.output_key
        prompt = [text_of(key, n, vocab_size) for key, n in request.prompt]
        self.ids: Tokens = np.concatenate(prompt) if prompt else np.empty(0, dtype=np.int64)
        self.sampled: list[int] = []
        self.drafts: Tokens = _NONE  # proposed for the next step

    def first(self, n: int) -> Tokens:
        """The first n token ids; a view, valid until more are asked for."""
        if n > len(self.ids):
            if self.sampled:
                answer = np.array(self.sampled, dtype=np.int64)
                if len(answer) < n - self.prompt_tokens:
                    raise ValueError(
                        f"request {self.request.index} has {len(answer)} answer tokens, not {n - self.prompt_tokens}"
                    )
            else:
                # Twice as far as needed: an answer of m tokens is drawn log m times.
                answer = text_of(self.answer_key, 2 * (n - self.prompt_tokens) + 62, self.vocab_size)
            self.ids = np.concatenate([self.ids[: self.prompt_tokens], answer])
        return self.ids[:n]

    def row(self, context: int, tokens: int, drafts: int = 0) -> Tokens:
        """Token ids of a row of a plan: what follows `context`, of which the last `drafts` are drafts (padded with id 0 where
        nobody proposed any)."""
        known = self.first(context + tokens - drafts)[context:]
        if not drafts:
            return known
        proposed = self.drafts[:drafts]
        return np.concatenate([known, proposed, np.zeros(drafts - len(proposed), dtype=np.int64)])

    def drop_drafts(self) -> None:
        self.drafts = _NONE

    def append(self, tokens: Sequence[int]) -> None:
        """Sampled tokens become part of the answer."""
        self.sampled.extend(tokens)
