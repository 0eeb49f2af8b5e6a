"""What every engine does with a plan, whatever computes it: texts, plans in flight, measuring on scratch memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.scratch import scratch_plan
from gpu_backend.tokens import Text
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import StepPlan, StepResult, StepShape

ANSWERS = ("forced", "sampled")


class Engine(ABC):
    """An executor (`serving.plan.Executor`) over a real decoder with paged KV.

    Args:
        answers: `forced` (default): every sampled token is computed and then discarded; what a request is fed next is the text
            of its `output_key`, so that later prompts which quote the answer hit the prefix cache as they do in the
            simulation. `sampled`: what the model says is what it is fed.

    Attributes:
        info: what runs, JSON-able, for records and profiles (a method).
    """

    def __init__(self, spec: ModelSpec, config: EngineConfig, *, seed: int = 0, answers: str = "forced") -> None:
        if answers not in ANSWERS:
            raise InputError(f"answers: found {answers!r}, allowed: {', '.join(ANSWERS)}")
        self.spec, self.config, self.seed, self.answers = spec, config, seed, answers
        self.most_in_flight = 2 if getattr(config, "async_scheduling", False) else 1
        self._in_flight: deque[tuple[StepPlan, Any]] = deque()
        self._texts: dict[int, Text] = {}
        self._filled = np.zeros(config.num_gpu_blocks, dtype=bool)
        self._draws = np.random.default_rng(seed)

    @abstractmethod
    def replica(self) -> Engine:
        """Another engine with KV memory of its own and the same weights."""

    @abstractmethod
    def info(self) -> dict[str, object]:
        """What runs, for records and profiles. JSON-able."""

    @abstractmethod
    def logits(self, plan: StepPlan) -> dict[int, Any]:
        """Computes a plan like a step and returns float32 logits `(vocabulary,)` by request index instead of tokens."""

    @abstractmethod
    def _launch(self, plan: StepPlan) -> Any:
        """Starts computing a plan whose texts are at hand."""

    @abstractmethod
    def _finish(self, plan: StepPlan, launched: Any) -> StepResult:
        """Waits for what was launched."""

    @abstractmethod
    def _fill(self, blocks: NDArray[np.int64]) -> None:
        """Puts finite numbers into blocks that nobody has written: fresh memory may hold anything, and its first touch is
        slow."""

    # --- serving.plan.Executor ---

    def submit(self, plan: StepPlan) -> None:
        """Takes a plan and starts it; `collect` waits for it.

        Raises:
            RuntimeError: too many plans are in flight: one, or two under asynchronous scheduling.
        """
        if len(self._in_flight) == self.most_in_flight:
            raise RuntimeError(f"plans in flight: {len(self._in_flight)}, and no more may be: collect it first")
        self._take_texts(plan)
        self._in_flight.append((plan, self._launch(plan)))

    def collect(self) -> StepResult:
        """Waits for the oldest plan in flight: its duration in ns, and the token that the model says by request index."""
        if not self._in_flight:
            raise RuntimeError("no plan is in flight: submit one first")
        plan, launched = self._in_flight.popleft()
        result = self._finish(plan, launched)
        if self.answers == "sampled" and result.tokens:
            for index, token in result.tokens.items():
                self._texts[index].append(token)
        return result

    def _take_texts(self, plan: StepPlan) -> None:
        """Has the text of everyone in the plan; done before the clock starts, as a client sends text, not keys."""
        if len(self._texts) > 2 * len(plan.scheduled) + 64 and self.answers == "forced":
            # Who comes back after long is drawn again, the same.
            present = {row.request.index for row in plan.scheduled}
            self._texts = {index: text for index, text in self._texts.items() if index in present}
        for row in plan.scheduled:
            text = self._texts.get(row.request.index)
            if text is None or text.request is not row.request:
                text = self._texts[row.request.index] = Text(row.request, self.spec.vocab_size)
            if self.answers == "forced":
                text.first(row.context + row.tokens)

    # --- calibration ---

    def measure(self, shape: StepShape, repeats: int = 1) -> int:
        """Runs one step of that shape on scratch KV, exactly as a plan is run; its duration in ns (the shortest of
        `repeats`). Only while no request is being served: blocks of the pool are overwritten.

        Raises:
            InputError: the shape contradicts itself or leaves the window or the KV memory of the engine.
        """
        plan = scratch_plan(shape, self.config, self._draws)
        ids = np.unique(np.concatenate([row.request.blocks for row in plan.scheduled]))
        fresh = ids[~self._filled[ids]]
        if len(fresh):
            self._fill(fresh)
            self._filled[fresh] = True
        durations = []
        for _ in range(repeats):
            self.submit(plan)
            durations.append(self.collect().duration_ns)
        for row in plan.scheduled:
            self._texts.pop(row.request.index, None)
        return min(durations)
