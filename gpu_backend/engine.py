"""What every engine does with a plan, whatever computes it: texts, plans in flight, measuring on scratch memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.host_blocks import HostBlocks
from gpu_backend.scratch import scratch_plan
from gpu_backend.speculation import leading_matches, prompt_lookup
from gpu_backend.tokens import Text
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import Scheduled, StepPlan, StepResult, StepShape
from serving.request import Status
from sim.acceptance import Acceptance

ANSWERS = ("forced", "sampled")


class Engine(ABC):
    """An executor (`serving.plan.Executor`) over a real decoder with paged KV.

    Args:
        answers: `forced` (default): every sampled token is computed and then discarded; what a request is fed next is the text
            of its `output_key`, so that later prompts which quote the answer hit the prefix cache as they do in the
            simulation. `sampled`: what the model says is what it is fed.
        acceptance: of drafts, where answers are forced: their text says nothing about a draft's chances.
        draft: the model that proposes, where `speculation` is draft.
    """

    def __init__(
        self,
        spec: ModelSpec,
        config: EngineConfig,
        *,
        seed: int = 0,
        answers: str = "forced",
        acceptance: Acceptance | None = None,
        draft: ModelSpec | None = None,
    ) -> None:
        if answers not in ANSWERS:
            raise InputError(f"answers: found {answers!r}, allowed: {', '.join(ANSWERS)}")
        if config.speculation != "none" and config.async_scheduling:
            raise InputError("async_scheduling: with speculation it is simulated only; allowed here: false")
        if config.speculation != "none" and (answers == "forced") != (acceptance is not None):
            needed = "needed" if answers == "forced" else "not possible"
            raise InputError(f"acceptance: with {answers} answers a given acceptance of drafts is {needed}")
        if (config.speculation == "draft") != (draft is not None):
            raise InputError("draft: a draft model goes with speculation draft, and with that alone")
        if draft is not None and draft.vocab_size != spec.vocab_size:
            raise InputError(
                f"draft: {draft.name} has a vocabulary of {draft.vocab_size}, {spec.name} one of {spec.vocab_size}; a draft model "
                f"must speak its target's tokens"
            )
        self.spec, self.config, self.seed, self.answers = spec, config, seed, answers
        self.acceptance = acceptance if config.speculation != "none" else None
        self._drafted: dict[int, int] = {}  # tokens that the draft model has seen, by request index
        self._host: HostBlocks | None = None
        self.most_in_flight = 2 if config.async_scheduling else 1
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
    def _draft_tokens(self, rows: list[Scheduled], k: int) -> dict[int, list[int]]:
        """Runs rows through the draft model; up to k greedy tokens after each that samples, by request index."""

    @abstractmethod
    def _fill(self, blocks: NDArray[np.int64]) -> None:
        """Puts finite numbers into blocks that nobody has written: fresh memory may hold anything, and its first touch is
        slow."""

    def _keep_on_host(self, *caches: Any) -> None:
        """Takes the host memory that the engine's settings ask for: for these caches' keys and values, and their scales."""
        names = ("keys", "values", "key_scales", "value_scales")
        parts = [getattr(cache, name, None) for cache in caches for name in names]
        if self.config.host_blocks:
            self._host = HostBlocks([part for part in parts if part is not None], self.config.host_blocks)

    def _move(self, plan: StepPlan) -> None:
        """Launches the copies of KV to the host and back that come before a step computes."""
        if plan.moves:
            if self._host is None:
                raise RuntimeError("a plan moves KV blocks, but the engine's settings give it no host memory")
            self._host.move(plan.moves)

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
        return self._finish(plan, launched)

    def _take_texts(self, plan: StepPlan) -> None:
        """Has the text of everyone in the plan; done before the clock starts, as a client sends text, not keys."""
        if len(self._texts) > 2 * len(plan.scheduled) + 64:
            self._forget_texts(plan)
        for row in plan.scheduled:
            text = self._texts.get(row.request.index)
            if text is None or text.request is not row.request:
                text = self._texts[row.request.index] = Text(row.request, self.spec.vocab_size)
            if self.answers == "forced":
                text.first(row.context + row.tokens + self.config.num_speculative_tokens + 1)
        for request, hit_tokens, _ in plan.admitted:  # what was proposed to it before a preemption is lost
            self._texts[request.index].drop_drafts()
            self._drafted[request.index] = hit_tokens

    def _forget_texts(self, plan: StepPlan) -> None:
        """Keeps the texts of those in this plan or in flight, and of those who run, whose drafts may wait for a step. A forced
        answer is drawn again, the same, for who comes back after long; a sampled one is kept until its request has ended."""
        plans = [plan, *(before for before, _ in self._in_flight)]
        needed = {row.request.index for one in plans for row in one.scheduled}
        kept = (Status.RUNNING,) if self.answers == "forced" else (Status.RUNNING, Status.PREEMPTED)
        self._texts = {i: text for i, text in self._texts.items() if i in needed or text.request.status in kept}
        self._drafted = {i: seen for i, seen in self._drafted.items() if i in self._texts}

    def _settle(self, plan: StepPlan, samplers: list[tuple[Scheduled, int]], picks: NDArray[np.int64]) -> StepResult:
        """What sampled rows come to: which drafts stand, the new tokens, and the drafts for the next step.

        Args:
            samplers: the plan's rows that sample, each with where its `1 + drafts` rows begin in `picks`.
            picks: the token that the model says after each sampled row `(R,)`.
        """
        tokens: dict[int, list[int]] = {}
        accepted: dict[int, int] = {}
        for row, at in samplers:
            request, text = row.request, self._texts[row.request.index]
            drafts = text.drafts[: row.drafts]
            if row.padded:
                stand = 0
            elif self.acceptance is not None:
                stand = self.acceptance.accepted(request, row.drafts) if row.drafts else 0
            else:
                stand = leading_matches(drafts, picks[at:])
            new = [*drafts[:stand].tolist(), int(picks[at + stand])]
            if row.drafts:
                accepted[request.index] = stand
            text.drop_drafts()
            if self.answers == "sampled":
                text.append(new)
            tokens[request.index] = new
        if self.config.speculation == "none":
            return StepResult(0, tokens)
        return StepResult(0, tokens, accepted, self._propose(plan, tokens))

    def _propose(self, plan: StepPlan, tokens: dict[int, list[int]]) -> dict[int, int]:
        """Drafts for the next step, kept in the texts; how many, by request index."""
        k, proposed = plan.propose, {}
        if not k:
            return {}
        found: dict[int, list[int]] = {}
        if self.config.speculation == "draft":
            found = self._draft_tokens(self._behind(plan, tokens), k)
        for row in plan.scheduled:
            request, new = row.request, tokens.get(row.request.index)
            if new is None:
                continue
            text = self._texts[request.index]
            known = row.context + row.tokens - row.drafts + len(new)
            if self.acceptance is not None:  # the text is known beforehand, and so is what would be found
                n = min(k, self.acceptance.proposed(request, request.num_outputs + len(new)))
                text.drafts = text.first(known + n)[known:]
            elif self.config.speculation == "ngram":
                text.drafts = prompt_lookup(text.first(known), k)
            else:
                text.drafts = np.array(found.get(request.index, []), dtype=np.int64)
            proposed[request.index] = len(text.drafts)
        return proposed

    def _behind(self, plan: StepPlan, tokens: dict[int, list[int]]) -> list[Scheduled]:
        """What the draft model has not seen of the requests of a plan: its rows, and the tokens that came of them."""
        rows, room = [], self.config.max_num_batched_tokens + self.config.max_num_seqs
        for row in plan.scheduled:
            index = row.request.index
            known = min(row.context + row.tokens - row.drafts + len(tokens.get(index, ())), self.config.max_model_len)
            seen = self._drafted.get(index, 0)
            n = min(known - seen, room)  # it may be far behind after steps that asked for no drafts
            if n > 0:
                rows.append(Scheduled(row.request, n, seen, samples=seen + n == known and index in tokens))
                self._drafted[index] = seen + n
                room -= n
        return rows

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
