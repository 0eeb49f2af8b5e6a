"""A machine with known costs: what calibration should find is what was put in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from serving.plan import StepShape


class SyntheticStepper:
    """Durations from a formula, with relative noise and an occasional slow step.

    Args:
        dense: ns of the dense layers by tokens.
        noise: standard deviation of a step, relative. slow: share of steps that take `slow_factor` times as long.
    """

    chunk, pair, prefill_context = 300_000.0, 9.0, 600.0
    decode_sequence, decode_context = 20_000.0, 800.0
    head, head_row = 2_000_000.0, 90_000.0

    def __init__(
        self,
        dense: Callable[[int], float] = lambda tokens: 6e6 + 60_000.0 * tokens,
        *,
        noise: float = 0.0,
        slow: float = 0.0,
        slow_factor: float = 3.0,
        seed: int = 1,
    ) -> None:
        self.dense, self.noise, self.slow, self.slow_factor = dense, noise, slow, slow_factor
        self.rng = np.random.default_rng(seed)
        self.calls: list[StepShape] = []

    def exact(self, shape: StepShape) -> float:
        chunks = StepShape(tuple((q, c) for q, c in shape.prefill if q > 1))
        single = [c for q, c in shape.prefill if q == 1]  # as engines do: one token is a decode
        return (
            self.dense(shape.tokens)
            + self.chunk * len(chunks.prefill)
            + self.pair * chunks.prefill_attention
            + self.prefill_context * sum(c for _, c in chunks.prefill)
            + self.decode_sequence * (shape.decode_sequences + len(single))
            + self.decode_context * (shape.decode_context + sum(single))
            + self.head * min(shape.sampled, 1)
            + self.head_row * shape.sampled
        )

    def measure(self, shape: StepShape) -> int:
        self.calls.append(shape)
        factor = float(np.exp(self.noise * self.rng.standard_normal()))
        if self.rng.random() < self.slow:
            factor *= self.slow_factor
        return round(self.exact(shape) * factor)

    def info(self) -> dict[str, object]:
        return {
            "device": "formula",
            "clock": "cpu",
            "threads": 1,
            "dtype": "bfloat16",
            "kv_dtype": "bfloat16",
            "seed": 7,
        }
