"""How far a run is, told while it goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from serving.plan import Executor, StepPlan, StepResult

Progress = Callable[[str, float], None]
"""Called with what is being done and the part of it that is, 0 to 1."""

DRAWN, SIMULATED = 0.05, 0.85
"""Parts of a simulation that are done when its requests are drawn, and when its records are complete: of ten minutes at 10 req/s."""


def nobody(what: str, share: float) -> None:
    """Hears of progress."""


def of_simulation(progress: Progress, share: float) -> None:
    """Tells how far the clock of a simulation has come."""
    progress("simulating", DRAWN + (SIMULATED - DRAWN) * share)


class Told:
    """How far a run is, by sampled tokens of all replicas."""

    def __init__(self, progress: Progress | None, tokens: int) -> None:
        self.progress, self.tokens, self.done = progress, max(tokens, 1), 0

    def add(self, sampled: int) -> None:
        self.done += sampled
        if self.progress is not None:
            self.progress("executing", min(1.0, self.done / self.tokens))


class Counted:
    """An executor that tells what it did."""

    def __init__(self, executor: Executor, told: Told) -> None:
        self._executor, self._told = executor, told
        self._sampled: deque[int] = deque()  # of the plans in flight

    def submit(self, plan: StepPlan) -> None:
        self._sampled.append(plan.shape.sampled)
        self._executor.submit(plan)

    def collect(self) -> StepResult:
        result = self._executor.collect()
        self._told.add(self._sampled.popleft())
        return result
