"""One request as an engine sees it, and the text it is made of."""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum
from typing import Any, NamedTuple

Segment = tuple[Hashable, int]
"""`(content_key, tokens)`: the first `tokens` tokens of the text called `content_key`. Equal keys mean equal text."""


class Status(IntEnum):
    """Where a request is; the last five are the ways in which it can end (law 1)."""

    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3
    REJECTED = 4
    TIMED_OUT = 5
    ABORTED = 6
    IN_FLIGHT = 7


class Cause(IntEnum):
    """Why a request was refused or given up; NONE where it was served."""

    NONE = 0
    NEVER_FITS = 1  # no empty engine could hold it
    QUEUE_REQUESTS = 2  # the bounded queue is full of requests
    QUEUE_TOKENS = 3  # or of prompt tokens
    RATE_LIMIT = 4  # the token bucket is empty
    TENANT_BUDGET = 5  # its tenant has used what it may
    SHED = 6  # its class is shed for others, or it was pushed out of a full queue
    LADDER = 7  # a rung of the degradation ladder refuses it
    QUEUE_TIMEOUT = 8  # the engine gave up on it: never scheduled in time
    CLIENT_TIMEOUT = 9  # its client left


class Tags(NamedTuple):
    """What a front end and an engine know of a request beyond its text and limits. Policies may look at all of it.

    One attribute of a request holds it all: few have any, and the size of a request is felt in a simulation's speed.

    tenant, service_class: indices of `Workload.tenants` and `Workload.classes`.
    predicted_tokens: answer length that the scenario's predictor expects; 0 without one.
    ttft_ns: its limit of time to first token after arrival, -1 without one.
    difficulty: 0 (trivial) to 1, what a router that judges prompts sees.
    session: conversation, -1 for none.
    ready_ns: when the front end handed it on; -1 for at once. rung: rungs of the degradation ladder that were in force for it.
    """

    tenant: int = 0
    service_class: int = 0
    predicted_tokens: int = 0
    ttft_ns: int = -1
    difficulty: float = 0.0
    session: int = -1
    ready_ns: int = -1
    rung: int = 0


NO_TAGS = Tags()
_WAITING = Status.WAITING  # looked up once: as slow as ten instructions


class Request:
    """A request and its engine state.

    There are no phases: `computed` counts the tokens whose KV exists, and a prefill is a request whose `computed` is far
    behind `num_tokens`, a decode one that is a single token behind.

    Args:
        index: its row in the workload and in the records; also the last tie-break of every order.
        prompt: segments of text; zero-length segments are dropped.
        output_tokens: the true answer length, read by `stops_after` alone (law 6): policies never see it.
        max_tokens: what the client declared.
        arrival_ns: when the client meant to send it.
        output_key: content key of its answer, so that a later prompt can quote it; `out:<index>` if None.
        priority: lower is better, as in vLLM.

    tags: what else is known of it.
    """

    __slots__ = (
        "_output_key",
        "_output_tokens",
        "arrival_ns",
        "arrival_order",
        "base",
        "blocks",
        "cached_tokens",
        "computed",
        "drafts",
        "first_scheduled_ns",
        "first_token_ns",
        "host_slots",
        "index",
        "last_step",
        "max_tokens",
        "num_outputs",
        "placeholders",
        "preemptions",
        "prefilling",
        "priority",
        "prompt",
        "prompt_tokens",
        "published",
        "scheduled_order",
        "status",
        "stop_after",
        "submission",
        "tags",
        "text",
    )

    # owned by the scheduler and its block pool while the request is theirs
    blocks: list[int]
    host_slots: list[int]  # where its KV is while it is swapped out
    published: int
    text: Any
    base: int
    stop_after: int
    scheduled_order: int
    last_step: int
    submission: int  # position in the order in which its replica got requests
    drafts: int  # proposed for its next step
    placeholders: int  # tokens that steps in flight will yield if all their drafts stand
    prefilling: bool  # its last row was a partial chunk

    def __init__(
        self,
        index: int,
        prompt: tuple[Segment, ...],
        output_tokens: int,
        max_tokens: int | None = None,
        prompt_tokens: int | None = None,
        arrival_ns: int = 0,
        priority: int = 0,
        *,
        arrival_order: float | None = None,
        output_key: Hashable = None,
    ) -> None:
        self.index = index
        self.prompt = prompt
        self.prompt_tokens = sum(n for _, n in prompt) if prompt_tokens is None else prompt_tokens
        self._output_tokens = output_tokens
        self.max_tokens = output_tokens if max_tokens is None else max_tokens
        self.arrival_ns = arrival_ns
        self.arrival_order = arrival_ns if arrival_order is None else arrival_order
        self._output_key = output_key
        self.priority = priority
        self.status = _WAITING
        self.computed = 0
        self.num_outputs = 0
        self.preemptions = 0
        self.cached_tokens = -1  # set at first admission
        self.first_scheduled_ns = -1
        self.first_token_ns = -1
        self.tags = NO_TAGS

    @property
    def output_key(self) -> Hashable:
        """What a later prompt calls this answer: `out:<index>` unless given."""
        return f"out:{self.index}" if self._output_key is None else self._output_key

    @property
    def num_tokens(self) -> int:
        """Prompt plus answer tokens known so far."""
        return self.prompt_tokens + self.num_outputs

    @property
    def expected_tokens(self) -> int:
        """`num_tokens`, and those that steps in flight will yield if all their drafts stand."""
        return self.prompt_tokens + self.num_outputs + self.placeholders

    def stops_after(self, max_model_len: int) -> int:
        """Answer tokens after which the request ends: the stop rule, and the only reader of the true length."""
        tokens, room = self._output_tokens, max_model_len - self.prompt_tokens
        if tokens > self.max_tokens:  # compared by hand: a call of `min` would take longer than all of this
            tokens = self.max_tokens
        return tokens if tokens < room else room

    def __repr__(self) -> str:
        return f"Request({self.index}, {self.prompt_tokens}+{self.num_outputs}, computed={self.computed})"
