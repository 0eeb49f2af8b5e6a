"""The arithmetic that the roofline and the fitted profiles share: tables by tokens and rows, straight lines in contexts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from serving.attribution import Shares
from serving.plan import StepShape

# Below this many elements a plain loop beats numpy's fixed cost of a call.
_LOOP = 40


class TabledCost(ABC):
    """A step costs, in nanoseconds,

        token(tokens) + head(sampled) + sequence_ns * decodes + context_ns * decode context + sum of chunk(query, context)

    `token` and `head` are tables, filled a power of two at a time when they are first needed. Every term is non-decreasing
    and IEEE sums of non-decreasing terms are non-decreasing, so a step never gets cheaper with more work (law 12).
    """

    name: str

    def __init__(self, name: str, sequence_ns: float, context_ns: float) -> None:
        self.name = name
        self._sequence_ns = sequence_ns
        self._context_ns = context_ns
        self._token: list[float] = []
        self._head: list[float] = []
        self._decode: list[float] = []
        self._whole: dict[int, float] = {}  # chunk(query, 0), as far as asked for

    @abstractmethod
    def _token_table(self, tokens: int) -> NDArray[np.float64]:
        """Cost of 0..tokens-1 rows of the dense layers, fixed costs of a step included, non-decreasing. Shape `(tokens,)`."""

    @abstractmethod
    def _head_table(self, rows: int) -> NDArray[np.float64]:
        """Cost of 0..rows-1 rows of the output head, non-decreasing. Shape `(rows,)`."""

    @abstractmethod
    def _chunk(self, query: int, context: int) -> float:
        """Cost of one prefill chunk beyond its dense rows, non-decreasing in both."""

    def decode_ns(self, sequences: int, context: int, longest: int) -> int:
        """A step of decodes only, all of which sample; the longest context has no term of its own."""
        try:
            fixed = self._decode[sequences]
        except IndexError:
            fixed = self._decode_fixed(sequences)
        return int(fixed + self._context_ns * context + 0.5)

    def decode_line(self, sequences: int, context: int, longest: int) -> tuple[float, float, float]:
        """`(fixed, per_context, until)`: a decode step is a straight line in the sum of contexts, without end."""
        try:
            return self._decode[sequences], self._context_ns, inf
        except IndexError:
            return self._decode_fixed(sequences), self._context_ns, inf

    def step_ns(self, shape: StepShape) -> int:
        """Any step."""
        prefill, sequences, context, _, sampled, _ = shape
        if not prefill:
            return self.decode_ns(sequences, context, 0)
        tokens = sequences
        chunks = 0.0
        for query, before in prefill:
            tokens += query
            chunks += self._chunk(query, before)
        try:
            fixed = self._token[tokens] + self._head[sampled]
        except IndexError:
            fixed = self._token_ns(tokens) + self._head_ns(sampled)
        return int(fixed + self._sequence_ns * sequences + self._context_ns * context + chunks + 0.5)

    def prompt_ns(self, query: int, sequences: int, context: int, longest: int) -> int:
        """A step of one whole prompt and `sequences` decodes: what `step_ns` says, without a shape to take apart."""
        try:
            fixed = self._token[sequences + query] + self._head[sequences + 1]
            chunk = self._whole[query]
        except (IndexError, KeyError):
            fixed = self._token_ns(sequences + query) + self._head_ns(sequences + 1)
            chunk = self._whole[query] = self._chunk(query, 0)
        return int(fixed + self._sequence_ns * sequences + self._context_ns * context + chunk + 0.5)

    def leap_ns(self, shape: StepShape, n: int) -> NDArray[np.int64]:
        """Durations, shape `(n,)`, of n successive decode steps, equal to `decode_ns` to the last bit."""
        sequences, context = shape.decode_sequences, shape.decode_context
        return straight_ns(self._decode_fixed(sequences), self._context_ns, context, sequences, n)

    def shares(
        self, steps: Mapping[str, NDArray[np.int64]], query: NDArray[np.int64], context: NDArray[np.int64]
    ) -> Shares:
        """What the first token costs (weights, the host) is shared by sequence, what more add by token; a decode's own part by
        decode."""
        decodes, sampled = steps["decode_sequences"], steps["sampled"]
        tokens = steps["prefill_tokens"] + decodes
        self._token_ns(int(tokens.max(initial=1)))
        self._head_ns(int(sampled.max(initial=1)))
        token, head = np.array(self._token), np.array(self._head)
        first = np.where(tokens > 0, token[1], 0.0)
        return Shares(
            fixed=first,
            tokens=np.maximum(token[tokens] - first, 0.0) * (tokens > 0),
            head=head[sampled],
            decodes=(self._sequence_ns * decodes).astype(np.float64),
            context=(self._context_ns * steps["decode_context"]).astype(np.float64),
            chunks=each_once(self._chunk, query, context),
        )

    def _decode_fixed(self, sequences: int) -> float:
        """What a decode step costs before contexts: `token + head + sequence_ns * sequences`."""
        if sequences >= len(self._decode):
            self._token_ns(sequences)
            self._head_ns(sequences)
            for n in range(len(self._decode), sequences + 1):
                self._decode.append(self._token[n] + self._head[n] + self._sequence_ns * n)
        return self._decode[sequences]

    def _token_ns(self, tokens: int) -> float:
        if tokens >= len(self._token):
            self._token = self._token_table(room(tokens)).tolist()
        return self._token[tokens]

    def _head_ns(self, rows: int) -> float:
        if rows >= len(self._head):
            self._head = self._head_table(room(rows)).tolist()
        return self._head[rows]


def straight_ns(fixed: float, per_context: float, context: int, sequences: int, n: int) -> NDArray[np.int64]:
    """floor(fixed + per_context * c + 0.5) for n contexts c from `context` on, each `sequences` more, to the last bit."""
    if n < _LOOP:
        return np.array([int(fixed + per_context * (context + i * sequences) + 0.5) for i in range(n)], dtype=np.int64)
    contexts = context + sequences * np.arange(n, dtype=np.int64)
    # One ufunc a time: no fused multiply-add, so every operation rounds as in the loop.
    ns = contexts * per_context
    ns += fixed
    ns += 0.5
    return ns.astype(np.int64)


def each_once(
    cost: Callable[[int, int], float], query: NDArray[np.int64], context: NDArray[np.int64]
) -> NDArray[np.float64]:
    """`cost(query, context)` of each chunk, `(chunks,)`; equal chunks are asked for once."""
    beyond = int(query.max(initial=0)) + 1
    pairs, which = np.unique(context * beyond + query, return_inverse=True)
    found = np.array([cost(pair % beyond, pair // beyond) for pair in pairs.tolist()], dtype=np.float64)
    return found[which]


def room(index: int) -> int:
    """The next power of two above an index, at least 1024: tables double, so growing them costs nothing in the long run."""
    return int(max(1024, 1 << (index + 1).bit_length()))
