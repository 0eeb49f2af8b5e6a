"""What a scheduler decides in one step, and the shape of it that costs time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from serving.host_memory import Move
from serving.request import Request


class StepShape(NamedTuple):
    """The part of a step that its duration depends on. Contexts are tokens *before* the step.

    prefill: `(query tokens, context tokens)` of each prefill chunk, and of each row that verifies drafts (its newest token
        and the drafts).
    decode_sequences: requests that compute exactly their newest token.
    decode_context: sum of their contexts; `decode_max_context`: the longest of them.
    sampled: rows of the output head: one of each decode and of each prompt that ends in this step, `1 + drafts` of a row
        that verifies drafts.
    draft_tokens: drafts verified, of all rows.
    """

    prefill: tuple[tuple[int, int], ...] = ()
    decode_sequences: int = 0
    decode_context: int = 0
    decode_max_context: int = 0
    sampled: int = 0
    draft_tokens: int = 0

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
    a token comes out. The last `drafts` of the tokens are drafts to be verified; `padded` ones nobody proposed: they give the
    step a uniform shape, and none of them stands. Under asynchronous scheduling `context` counts drafts in flight as if they
    stood."""

    request: Request
    tokens: int
    context: int
    samples: bool
    drafts: int = 0
    padded: bool = False


class Admission(NamedTuple):
    """A request that entered the running set in this step, and the prompt tokens it found in the prefix cache."""

    request: Request
    hit_tokens: int
    resumed: bool


@dataclass(slots=True)
class StepPlan:
    """One step as decided. `scheduled` is in scheduler order; counts are those after `schedule()`.

    A plan without rows is an empty step: nothing to run. `preempted` is in the order in which blocks were lost. `propose`:
    drafts that are wanted, for its next step, of every row that samples. `moves`: blocks of KV that are copied to the host and
    back before anything is computed, one after another in this order; an empty step leaves them to the next one.
    `stranded_blocks`: free ones outside the widest hole, where KV memory is contiguous.
    """

    step: int
    scheduled: list[Scheduled]
    shape: StepShape
    admitted: list[Admission] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    free_blocks: int = 0
    propose: int = 0
    moves: Sequence[Move] = ()
    stranded_blocks: int = 0

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
    """What an executor reports of a step, by request index where it is about rows.

    duration_ns: of the whole step, proposing included. tokens: ids that came out of a real model, drafts that stand first
    (None: lengths alone count).
    accepted: drafts that stand, of those verified; missing is 0. proposed: drafts that were found for the next step, at most
    the plan's `propose`; missing is 0. Both None without speculation; `proposed` is not looked at under asynchronous
    scheduling, where the next step has been decided by then.
    """

    duration_ns: int
    tokens: Mapping[int, Sequence[int]] | None = None
    accepted: Mapping[int, int] | None = None
    proposed: Mapping[int, int] | None = None


class Executor(Protocol):
    """Runs plans: a cost model, recorded durations, or real kernels. One plan is in flight at most; two while scheduling is
    asynchronous, which are collected in the order in which they were submitted."""

    def submit(self, plan: StepPlan) -> None: ...

    def collect(self) -> StepResult: ...
