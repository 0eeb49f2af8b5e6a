"""What a scheduler decides in one step, and the shape of it that costs time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from serving.request import Request


class StepShape(NamedTuple):
    """The part of a step that its duration depends on. Contexts are tokens *before* the step.

    prefill: `(query tokens, context tokens)` of each prefill chunk.
    decode_sequences: requests that compute exactly their newest token.
    decode_context: sum of their contexts; `decode_max_context`: the longest of them.
    sampled: sequences that get a token, i.e. rows of the output head (decodes and prompts that end in this step).
    """

    prefill: tuple[tuple[int, int], ...] = ()
    decode_sequences: int = 0
    decode_context: int = 0
    decode_max_context: int = 0
    sampled: int = 0

    @property
    def tokens(self) -> int:
        """Rows of the dense layers."""
        return self.decode_sequences + sum(query for query, _ in self.prefill)

    @property
    def prefill_tokens(self) -> int:
        return sum(query for query, _ in self.prefill)

    @property
    def prefill_attention(self) -> int:
        """Sum over chunks of query x context, the causal half of the chunk itself included (pairs of tokens)."""
        return sum(q * c + q * (q + 1) // 2 for q, c in self.prefill)


@dataclass(slots=True)
class Scheduled:
    """One row of a plan: `tokens` more of `request`, whose first `context` tokens have their KV; `samples` says whether
    a token comes out."""

    request: Request
    tokens: int
    context: int
    samples: bool


class Admission(NamedTuple):
    """A request that entered the running set in this step, and the prompt tokens it found in the prefix cache."""

    request: Request
    hit_tokens: int
    resumed: bool


@dataclass(slots=True)
class StepPlan:
    """One step as decided. `scheduled` is in scheduler order; counts are those after `schedule()`.

    A plan without rows is an empty step: nothing to run. `preempted` is in the order in which blocks were lost.
    """

    step: int
    scheduled: list[Scheduled]
    shape: StepShape
    admitted: list[Admission] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    free_blocks: int = 0

    def started(self, now: int) -> None:
        """The step begins: those that it admits for the first time are scheduled now."""
        for request, _, _ in self.admitted:
            if request.first_scheduled_ns < 0:
                request.first_scheduled_ns = now

    def ended(self, now: int) -> None:
        """The step has ended: first tokens are out now."""
        for row in self.scheduled:
            if row.samples and row.request.first_token_ns < 0:
                row.request.first_token_ns = now


@dataclass(slots=True, frozen=True)
class StepResult:
    """What an executor reports of a step: its duration in ns and, from a real model, the sampled token ids by request
    index (None: lengths alone count)."""

    duration_ns: int
    tokens: dict[int, int] | None = None


class Executor(Protocol):
    """Runs plans: a cost model, recorded durations, or real kernels. At most one plan is in flight while scheduling is
    synchronous."""

    def submit(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult: ...
