"""What stands before the replicas: clients that lose patience, a front end, a degradation ladder, admission.

Described here as one thing; `sim.deployment` puts it on the simulated clock, `gpu_backend.live` on the real one. The decisions
themselves are those of `serving.front_end`, `serving.degradation` and `serving.admission`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from scenarios.client_behaviour import Patience
from scenarios.transforms import Dialogue, cap_output, drop_stale_turns, quote_what_was_said
from scenarios.workload import Workload
from serving.admission import Limits
from serving.degradation import Effects, Rung
from serving.front_end import FrontEndCost
from serving.request import Cause, Request


@dataclass(frozen=True)
class Front:
    """Each part is None, or empty, where there is none.

    rungs: of the degradation ladder, the mildest first. watch: the pool whose replicas its triggers look at, None for all.
    """

    patience: Patience | None = None
    front_end: FrontEndCost | None = None
    rungs: tuple[Rung, ...] = ()
    watch: str | None = None
    limits: Limits | None = None

    @property
    def plain(self) -> bool:
        """Whether requests go straight to the router."""
        return self.patience is None and self.front_end is None and not self.rungs and self.limits is None

    @property
    def times_out(self) -> bool:
        """Whether somebody may give up on a request that was sent."""
        return self.patience is not None or self.queue_timeout_ns is not None

    @property
    def queue_timeout_ns(self) -> int | None:
        return None if self.limits is None else self.limits.queue_timeout_ns


NOTHING = Front()

REFUSED = {
    Cause.QUEUE_REQUESTS: "the queue is full of requests",
    Cause.QUEUE_TOKENS: "the queue is full of prompt tokens",
    Cause.RATE_LIMIT: "more comes than is allowed",
    Cause.TENANT_BUDGET: "its tenant has used what it may",
    Cause.SHED: "its class is shed",
    Cause.LADDER: "the last rung of the ladder refuses everybody",
}


def degrade(request: Request, workload: Workload, effects: Effects, level: int) -> None:
    """Changes a request as the first `level` rungs demand, before an engine sees it; `Request.rung` says so."""
    request.rung = level
    if effects.cap is not None:
        request.max_tokens = cap_output(request.max_tokens, effects.cap)
    if effects.keep_turns is not None and workload.segment_role is not None and workload.segment_offset is not None:
        first, last = workload.segment_offset[request.index % len(workload) :][:2]
        roles = tuple(workload.segment_role[first:last].tolist())
        _change(request, drop_stale_turns(Dialogue(request.prompt, roles), effects.keep_turns))


def requote(request: Request, cut: Mapping[Hashable, int]) -> None:
    """A later turn quotes no more of an answer than came out of it. cut: tokens of the answers that were capped, by key."""
    if any(key in cut for key, _ in request.prompt):
        _change(request, quote_what_was_said(Dialogue(request.prompt, (0,) * len(request.prompt)), cut))


def _change(request: Request, prompt: Dialogue) -> None:
    request.prompt = prompt.segments
    request.prompt_tokens = prompt.tokens
