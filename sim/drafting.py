"""What proposing drafts costs, on top of the step that they are proposed after."""

from __future__ import annotations

from typing import Protocol

from serving.plan import StepShape
from sim.cost import CostModel


class Drafting(Protocol):
    """Who proposes, as far as it costs time. name: for reports."""

    name: str

    def ns(self, shape: StepShape) -> int:
        """Time that proposing takes after a step of that shape, for every request that sampled in it."""


class DraftModel:
    """A smaller model runs behind the target: it reads what the target has just read, its first draft comes of that, and each
    of the other k - 1 takes a decode step of its own.

    Args:
        cost: of the draft model's steps. k: drafts proposed at a time.
    """

    def __init__(self, cost: CostModel, k: int) -> None:
        self.cost = cost
        self.k = k
        self.name = f"{k} steps of {cost.name}"

    def ns(self, shape: StepShape) -> int:
        rows = _proposers(shape)
        if not rows:
            return 0
        first = self.cost.step_ns(shape._replace(sampled=rows, draft_tokens=0))
        behind = StepShape((), rows, _context(shape), 0, rows)
        return first + int(self.cost.leap_ns(behind, self.k - 1).sum())


class DraftShare:
    """A draft takes a given share of what a decode step of the target takes, for the same requests.

    Args:
        cost: of the target's steps. share: of it. k: drafts proposed at a time.
    """

    def __init__(self, cost: CostModel, share: float, k: int) -> None:
        self.cost = cost
        self.share = share
        self.k = k
        self.name = f"{k} drafts of {share:g} of a decode step"

    def ns(self, shape: StepShape) -> int:
        rows = _proposers(shape)
        if not rows:
            return 0
        return round(self.k * self.share * self.cost.decode_ns(rows, _context(shape), 0))


def _proposers(shape: StepShape) -> int:
    """Requests that sampled: those that get drafts."""
    return shape.sampled - shape.draft_tokens


def _context(shape: StepShape) -> int:
    """Tokens behind them when they get drafts. A chunk that is not a prompt's last counts as if it were."""
    ends = sum(query + context for query, context in shape.prefill)
    return shape.decode_context + shape.decode_sequences + ends
