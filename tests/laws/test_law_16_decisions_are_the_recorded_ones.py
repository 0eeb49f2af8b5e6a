"""Decisions equal the recorded scheduler's, step by step; and a scheduler with one rule of working ahead broken is found out.

Every recording and every scheduler of ours is in tests/conformance; here is what makes the recordings a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pytest

from serving.config import EngineConfig
from serving.plan import StepPlan
from serving.request import Request, Status
from serving.scheduler import Scheduler
from serving.speculation import Speculation
from studies.conformance import compare
from studies.scheduler_traces import TraceScenario, read_file
from tests.conformance.test_traces import TRACES


@cache
def recordings() -> tuple[TraceScenario, ...]:
    groups = ("spec", "async", "async_spec")
    return tuple(scenario for group in groups for scenario in read_file(TRACES / f"{group}.json.gz"))


def differing(make: Callable[[EngineConfig], Scheduler]) -> list[str]:
    """Scenarios in which such a scheduler leaves the recording."""
    return [scenario.name for scenario in recordings() if compare(scenario, "variant", make) is not None]


def test_the_scheduler_leaves_no_recording() -> None:
    assert len(recordings()) == 52
    assert differing(Scheduler) == []


class LosesDraftsOfThoseLeftOut(Scheduler):
    """A request that is not scheduled in a step loses what was proposed."""

    def schedule(self, now_ns: int = 0) -> StepPlan:
        plan = super().schedule(now_ns)
        rows = [row.request for row in plan.scheduled]
        for request in self.running:
            if request not in rows:
                request.drafts = 0
        return plan


class KeepsRejectedDrafts(Scheduler):
    """Does not take back what was counted for drafts that fell."""

    def _deliver(self, request: Request, drafts: int, stand: int) -> bool:
        request.computed += drafts - stand if request.status is Status.RUNNING else 0
        return super()._deliver(request, drafts, stand)


class GivesBackBlocksOfRejectedDrafts(Scheduler):
    def _deliver(self, request: Request, drafts: int, stand: int) -> bool:
        ended = super()._deliver(request, drafts, stand)
        needed = -(-request.computed // self.config.block_size)
        if request.status is Status.RUNNING and not ended:
            kept, request.blocks = request.blocks[:needed], request.blocks[needed:]
            self.pool.free(request)
            request.blocks = kept
        return ended


class NeverPads(Scheduler):
    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.speculation = _NoPadding(config)


class _NoPadding(Speculation):
    def padding(self, tokens: int, hit_tokens: int, decodes_alone: bool, anything_runs: bool) -> int:
        return 0


class AlwaysPads(Scheduler):
    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.speculation = _Padding(config)


class _Padding(Speculation):
    def padding(self, tokens: int, hit_tokens: int, decodes_alone: bool, anything_runs: bool) -> int:
        return super().padding(tokens, hit_tokens, decodes_alone=True, anything_runs=True)


class LooksAheadWithNgrams(Scheduler):
    """Takes blocks for drafts a step early, as with a draft model."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.speculation.lookahead = config.num_speculative_tokens


class DoesNotForeseeLengthLimits(Scheduler):
    def _ends_in_flight(self, request: Request) -> bool:
        return False


class DropsTokensInFlightAtAPreemption(Scheduler):
    def update(
        self, plan: StepPlan, accepted: Mapping[int, int] | None = None, proposed: Mapping[int, int] | None = None
    ) -> list[Request]:
        plan.scheduled = [row for row in plan.scheduled if row.request.status is not Status.PREEMPTED]
        return super().update(plan, accepted, proposed)


class PublishesOnlyWhenDeciding(Scheduler):
    """Blocks whose text was unknown when they were filled are never found."""

    def _deliver(self, request: Request, drafts: int, stand: int) -> bool:
        caching, self.pool.caching = self.pool.caching, False
        ended = super()._deliver(request, drafts, stand)
        self.pool.caching = caching
        return ended


@pytest.mark.parametrize(
    "variant",
    [
        LosesDraftsOfThoseLeftOut, KeepsRejectedDrafts, GivesBackBlocksOfRejectedDrafts, NeverPads, AlwaysPads,
        LooksAheadWithNgrams, DoesNotForeseeLengthLimits, DropsTokensInFlightAtAPreemption, PublishesOnlyWhenDeciding,
    ],
)  # fmt: skip
def test_a_broken_rule_is_found_out(variant: type[Scheduler]) -> None:
    assert differing(variant)
