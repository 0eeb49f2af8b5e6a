"""What stands before the replicas: clients that lose patience, a front end, a degradation ladder, admission.

Described here as one thing; `sim.deployment` puts it on the simulated clock, `gpu_backend.live` on the real one. The decisions
themselves are those of `serving.front_end`, `serving.degradation` and `serving.admission`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from scenarios.admission import Admission
from scenarios.client_behaviour import ClientBehaviour, Patience
from scenarios.degradation import Degradation
from scenarios.errors import InputError, unknown
from scenarios.front_end import FrontEnd
from scenarios.generate import Streams
from scenarios.transforms import Dialogue, cap_output, drop_stale_turns, quote_what_was_said
from scenarios.workload import Workload
from serving.admission import Limits
from serving.degradation import Effects, Rung
from serving.front_end import FrontEndCost
from serving.records import Records
from serving.request import Cause, Request, Status


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


@dataclass(frozen=True)
class Sections:
    """What a scenario says of all this."""

    client_behaviour: ClientBehaviour | None = None
    front_end: FrontEnd | None = None
    admission: Admission | None = None
    degradation: Degradation | None = None


def front_of(sections: Sections, workload: Workload, seed: int) -> Front:
    """The same for one workload.

    Raises:
        InputError: a tenant or class is named that the workload does not have.
    """
    clients, admission, degradation = sections.client_behaviour, sections.admission, sections.degradation
    if admission is not None:
        for name in admission.tenants:
            if name not in workload.tenants:
                raise InputError(f"admission.tenants.{name}: {unknown('tenant', name, workload.tenants)}")
    ladder = () if degradation is None else degradation.ladder
    for i, rung in enumerate(ladder):
        if rung.shed_class is not None and rung.shed_class not in workload.classes:
            why = unknown("service class", rung.shed_class, workload.classes)
            raise InputError(f"degradation.ladder[{i}].shed_class: {why}")
    return Front(
        None if clients is None else clients.patience(len(workload), Streams(seed)),
        None if sections.front_end is None else sections.front_end.cost(),
        tuple(rung.rung(workload.classes) for rung in ladder),
        None if degradation is None else degradation.watch,
        None if admission is None else admission.limits(workload.tenants),
    )


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


def answer_cut_short(request: Request, workload: Workload) -> dict[Hashable, int]:
    """Tokens of a complete answer that the ladder cut short, by the key by which later turns quote it; empty otherwise."""
    row = request.index % len(workload)
    if not request.rung or request.num_outputs >= min(workload.output_tokens[row], workload.max_tokens[row]):
        return {}
    return {f"out:{row}": request.num_outputs}


def cut_answers(records: Records, workload: Workload) -> dict[Hashable, int]:
    """Tokens of the answers of a run that the ladder cut short, by the keys by which later turns quote them."""
    r, n = records.requests, len(workload)
    rows = np.flatnonzero((r["status"] == Status.FINISHED) & (r["rung"] > 0))
    wanted = np.minimum(workload.output_tokens, workload.max_tokens)[rows % n]
    short = rows[r["output_tokens"][rows] < wanted]
    return {f"out:{row % n}": int(r["output_tokens"][row]) for row in short.tolist()}


def requote(request: Request, cut: Mapping[Hashable, int]) -> None:
    """A later turn quotes no more of an answer than came out of it. cut: tokens of the answers that were capped, by key."""
    if any(key in cut for key, _ in request.prompt):
        _change(request, quote_what_was_said(Dialogue(request.prompt, (0,) * len(request.prompt)), cut))


def _change(request: Request, prompt: Dialogue) -> None:
    request.prompt = prompt.segments
    request.prompt_tokens = prompt.tokens
