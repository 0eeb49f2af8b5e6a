"""What stands before the replicas: clients that lose patience, a front end, a degradation ladder, admission.

Described here as one thing; `sim.deployment` puts it on the simulated clock, `gpu_backend.live` on the real one. The decisions
themselves are those of `serving.front_end`, `serving.degradation` and `serving.admission`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from scenarios.admission import Admission
from scenarios.client_behaviour import ClientBehaviour, Patience
from scenarios.degradation import Degradation
from scenarios.dialogue import Dialogue, cap_output, drop_stale_turns, quote_what_was_said
from scenarios.errors import InputError, unknown
from scenarios.front_end import FrontEnd
from scenarios.generate import Streams
from scenarios.history import row_of, shorter
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
    """Changes a request as the first `level` rungs demand, before an engine sees it; `Tags.rung` says so."""
    request.tags = request.tags._replace(rung=level)
    if effects.cap is not None:
        request.max_tokens = cap_output(request.max_tokens, effects.cap)
    if effects.keep_turns is not None and workload.segment_role is not None and workload.segment_offset is not None:
        first, last = workload.segment_offset[request.index % len(workload) :][:2]
        roles = tuple(workload.segment_role[first:last].tolist())
        _change(request, drop_stale_turns(Dialogue(request.prompt, roles), effects.keep_turns))


Cut = dict[int, int]
"""By request: the tokens of its answer, where the ladder cut it short."""


def note_answer(cut: Cut, request: Request, workload: Workload) -> None:
    """Notes a complete answer: whether later turns can quote all of it. Of several tries the last one counts."""
    _note(cut, request.index % len(workload), request.tags.rung, request.num_outputs, workload)


def cut_answers(records: Records, workload: Workload) -> Cut:
    """The answers of a run that the ladder cut short."""
    r, cut = records.requests, Cut()
    for row in np.flatnonzero(r["status"] == Status.FINISHED).tolist():  # tries in their order
        _note(cut, row % len(workload), int(r["rung"][row]), int(r["output_tokens"][row]), workload)
    return cut


def _note(cut: Cut, row: int, rung: int, tokens: int, workload: Workload) -> None:
    if rung and tokens < min(workload.output_tokens[row], workload.max_tokens[row]):
        cut[row] = tokens
    else:
        cut.pop(row, None)


def requote(request: Request, cut: Cut, workload: Workload) -> None:
    """A later turn quotes no more of an answer than came out of it."""
    quoted: dict[int, dict[str, int]] = {}
    for key, tokens in request.prompt:
        if (row := row_of(key)) is not None and row in cut:
            quoted.setdefault(row, {})[str(key).partition(":")[0]] = tokens
    answers: dict[Hashable, int] = {}
    for row, pieces in quoted.items():
        whole = int(min(workload.output_tokens[row], workload.max_tokens[row]))
        answers |= {f"{kind}:{row}": tokens for kind, tokens in shorter(pieces, cut[row], whole).items()}
    if answers:
        _change(request, quote_what_was_said(Dialogue(request.prompt, (0,) * len(request.prompt)), answers))


def _change(request: Request, prompt: Dialogue) -> None:
    request.prompt = prompt.segments
    request.prompt_tokens = prompt.tokens
