"""What a judge says of answers: drawn before the run, since whether an answer is right depends on no scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scenarios.generate import Streams
from scenarios.quality_curve import quality_at

Curve = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Judge:
    """Who reads an answer before its client does.

    recall: share of the wrong answers that it rejects. false_positive_rate: share of the right ones.
    """

    latency_ns: int
    recall: float = 1.0
    false_positive_rate: float = 0.0

    def trusted(self, quality: NDArray[np.float64]) -> NDArray[np.float64]:
        """The chance that an answer is right of which the judge has said so. quality: the chance before."""
        right = quality * (1.0 - self.false_positive_rate)
        wrong = (1.0 - quality) * (1.0 - self.recall)
        return np.where(right + wrong > 0, right / np.maximum(right + wrong, 1e-300), quality)


@dataclass(frozen=True)
class Escalation:
    """Which answers are rejected, and when that is known.

    rejected: bool `(pools, n)`: whether the judge rejects the answer of a pool to a request.
    latency_ns: what the judge takes to read an answer.
    """

    rejected: NDArray[np.bool_]
    latency_ns: int


def draw_verdicts(
    judge: Judge, curves: Sequence[Curve | None], names: Sequence[str], difficulty: NDArray[np.float64], seed: int
) -> Escalation:
    """Verdicts on the answers of every pool to every request. Draws go by the pool's name and the request: what else there is moves
    none of them.

    Args:
        curves: quality over difficulty, one a pool; None for a pool whose answers nobody judges. difficulty: `(n,)`.
    """
    n = len(difficulty)
    rejected = np.zeros((len(curves), n), dtype=bool)
    for number, (curve, name) in enumerate(zip(curves, names, strict=True)):
        if curve is not None:
            right, caught = Streams(seed)(f"answers:{name}").random((n, 2)).T
            share = np.where(right < quality_at(curve, difficulty), judge.false_positive_rate, judge.recall)
            rejected[number] = caught < share
    return Escalation(rejected, judge.latency_ns)
