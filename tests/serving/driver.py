"""Hand-driven engines: every scheduler that takes the settings, without clock and without model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from serving.config import EngineConfig
from serving.plan import StepPlan
from serving.request import Request, Segment
from studies.conformance import Factory
from tests.conformance.subjects import SUBJECTS


@dataclass(frozen=True)
class Step:
    """What happened in one step, by request index."""

    scheduled: list[tuple[int, int]]
    hits: dict[int, int]
    resumed: dict[int, int]
    preempted: list[int]
    sampled: list[int]
    running: list[int]
    waiting: list[int]
    free: int
    finished: list[int]
    free_after: int


class Engine:
    """One scheduler and the requests it was sent."""

    def __init__(self, name: str, make: Factory, config: EngineConfig) -> None:
        self.name = name
        self.make = make
        self.config = config
        self.requests: list[Request] = []
        self._scheduler: Any = None

    @property
    def scheduler(self) -> Any:
        if self._scheduler is None:
            self._scheduler = self.make(self.config)
        return self._scheduler

    def other(self, **settings: Any) -> Engine:
        """A fresh engine of the same kind with some settings changed."""
        return Engine(self.name, self.make, dataclasses.replace(self.config, **settings))

    def send(
        self,
        prompt: int | tuple[Segment, ...],
        output: int = 1,
        *,
        max_tokens: int | None = None,
        priority: int = 0,
        arrival: float | None = None,
    ) -> Request:
        """A request arrives; a plain number is a prompt of so many tokens that nobody else sends."""
        i = len(self.requests)
        request = Request(
            i,
            ((f"own{i}", prompt),) if isinstance(prompt, int) else prompt,
            output,
            max_tokens,
            arrival_order=i if arrival is None else arrival,
            output_key=f"out:{i}",
            priority=priority,
        )
        self.requests.append(request)
        self.scheduler.add(request)
        return request

    def schedule(self) -> StepPlan:
        plan: StepPlan = self.scheduler.schedule()
        return plan

    def update(self, plan: StepPlan, stand: int = 0, found: int = 99) -> list[int]:
        """Who ends by a step; of its drafts `stand` a row are right, and `found` are proposed for the next one."""
        rows = [row.request.index for row in plan.scheduled]
        counts = (dict.fromkeys(rows, stand), dict.fromkeys(rows, found))
        said = counts if self.config.speculation != "none" else ()
        return [request.index for request in self.scheduler.update(plan, *said)]

    def step(self, stand: int = 0, found: int = 99) -> Step:
        plan = self.schedule()
        running = [request.index for request in self.scheduler.running]
        waiting = [request.index for request in self.scheduler.waiting]
        finished = self.update(plan, stand, found)
        assert (plan.running, plan.waiting) == (len(running), len(waiting))
        return Step(
            scheduled=[(row.request.index, row.tokens) for row in plan.scheduled],
            hits={a.request.index: a.hit_tokens for a in plan.admitted},
            resumed={a.request.index: a.hit_tokens for a in plan.admitted if a.resumed},
            preempted=[request.index for request in plan.preempted],
            sampled=[row.request.index for row in plan.scheduled if row.samples],
            running=running,
            waiting=waiting,
            free=plan.free_blocks,
            finished=finished,
            free_after=self.scheduler.free_blocks,
        )

    def drain(self, most: int = 20_000, stand: int = 0) -> list[Step]:
        """Steps until nothing is left; then every block must be free."""
        steps: list[Step] = []
        while self.scheduler.has_work:
            assert len(steps) < most, "the run does not end"
            steps.append(self.step(stand))
        assert self.scheduler.free_blocks == self.config.usable_blocks
        assert list(self.scheduler.running) == list(self.scheduler.waiting) == []
        return steps

    def block_table(self, request: Request) -> list[int]:
        """Ids of the blocks that a request owns; not for the fast path, which only counts them."""
        if self.name == "oracle":
            return list(self.scheduler.block_table(request))
        return list(request.blocks)


def on(*, but_not: str = "", **settings: Any) -> Callable[[Any], Any]:
    """Runs a test once for every scheduler that supports the settings. `usable`: blocks without the null block."""
    config = EngineConfig(num_gpu_blocks=settings.pop("usable", 256) + 1, **settings)
    return pytest.mark.parametrize(
        "engine",
        [
            pytest.param(Engine(name, subject.make, config), id=name)
            for name, subject in SUBJECTS.items()
            if name != but_not and subject.supports(config)
        ],
    )
