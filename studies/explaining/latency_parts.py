"""Where the latency of every request went: parts in nanoseconds that sum to it exactly.

A step is shared by all who have a row in it. What it takes longer because it computes prompts, by the cost model, is the prompts'
part: their owners' own prefill, and other prompts' for everybody else in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from serving.plan import StepShape
from serving.records import Records
from serving.request import Status
from serving.row_log import CHUNK_COLUMNS
from serving.rows import Rows
from sim.cost import CostModel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PARTS = {
    "retry": "tries before this one, and the pauses between them",
    "front_end": "HTTP and tokenisation",
    "queue": "waiting for its first step",
    "own_prefill": "steps that compute its prompt, as far as other prompts do not prolong them",
    "other_prefill": "what other prompts prolong its steps by, and steps of other prompts alone while it runs",
    "decode": "steps that compute its answer, as far as prompts do not prolong them",
    "preemption": "from the loss of its blocks until it is where it was",
    "transfer": "copies of KV blocks that its steps wait for",
    "left_out": "steps that decode others while it runs and is left out",
    "judge": "a judge reads the whole answer before its client sees any of it",
}
"""What the parts are, in words; in the order in which they happen first."""


@dataclass(frozen=True)
class LatencyParts:
    """Parts of every request's latency in ns, int64 `(n,)` each by its name in PARTS; 0 throughout where it was never sent.

    before: of the time until its first token (TTFT); after: from then on. Both together are its E2E latency from the first time that
    its client meant to send it; of one that did not finish, until it was given up.
    shared_by: how steps were divided: `step costs` (a cost model), or `tokens` where there is none.
    """

    before: dict[str, Ints]
    after: dict[str, Ints]
    shared_by: str

    def ttft(self) -> Ints:
        """Time to first token in ns, retries included, `(n,)`."""
        return np.sum(list(self.before.values()), axis=0)

    def e2e(self) -> Ints:
        """E2E latency in ns, retries included, `(n,)`."""
        return self.ttft() + np.sum(list(self.after.values()), axis=0)

    def of(self, request: int) -> dict[str, int]:
        """All parts of one request that took any time."""
        both = {name: int(self.before[name][request] + self.after[name][request]) for name in PARTS}
        return {name: ns for name, ns in both.items() if ns}


@dataclass(frozen=True)
class StepParts:
    """How each step of a run is divided, in ns, int64 `(steps,)`: copies, what decodes would take alone, and what prompts add.

    own: of every row of `Rows.chunks`, int64 `(rows,)`: what its step would take, copies aside, without other prompts.
    prompt: bool `(rows,)`: whether the row computes a prompt (or recomputes), rather than the next tokens of an answer.
    """

    transfer: Ints
    decode: Ints
    prompts: Ints
    own: Ints
    prompt: NDArray[np.bool_]
    shared_by: str


def divide_steps(
    records: Records, rows: Rows, costs: Sequence[CostModel | None], transfer_ns: Ints | None = None
) -> StepParts:
    """Divides every step of a run.

    Args:
        costs: cost model of each replica; None where there is none: then by tokens.
        transfer_ns: what copies of KV blocks take in each step, int64 `(steps,)`.
    """
    steps, chunks = records.steps, rows.chunks
    taken = steps["end_ns"] - steps["start_ns"]
    transfer = np.zeros(len(taken), np.int64) if transfer_ns is None else np.minimum(transfer_ns, taken)
    net = taken - transfer
    answer = (chunks["samples"] > 0) & (chunks["context"] >= records.requests["prompt_tokens"][chunks["request"]])
    # A row of several tokens behind the prompt verifies drafts, or recomputes an answer where nobody drafts.
    prompt = ~(answer & ((chunks["decodes"] > 0) | (steps["verify_sequences"][chunks["step"]] > 0)))
    alone, own = np.ones(len(taken)), np.ones(len(prompt))
    at = np.flatnonzero(prompt)
    for group in np.split(at, np.flatnonzero(np.diff(chunks["step"][at])) + 1) if len(at) else ():
        step = int(chunks["step"][group[0]])
        cost = costs[int(steps["replica"][step])]
        decodes = tuple(int(steps[name][step]) for name in ("decode_sequences", "decode_context", "decode_max_context"))
        pairs = list(zip(chunks["tokens"][group].tolist(), chunks["context"][group].tolist(), strict=True))
        verify = _verifying(chunks, prompt, step) if steps["verify_sequences"][step] else ()
        lone = _Shapes(decodes, verify)
        if not decodes[0] and not verify:
            alone[step] = 0.0
        else:
            alone[step] = _ratio(cost, lone.shape(()), lone.shape(pairs))
        if len(group) > 1:
            own[group] = [_ratio(cost, lone.shape((pair,)), lone.shape(pairs)) for pair in pairs]
    decode = np.rint(net * alone).astype(np.int64)
    shared = "step costs" if all(cost is not None for cost in costs) else "tokens"
    mine = np.rint(net[chunks["step"]] * own).astype(np.int64)
    return StepParts(transfer, decode, net - decode, mine, prompt, shared)


class _Shapes:
    """Shapes of one step with some of its prompts."""

    def __init__(self, decodes: tuple[int, ...], verify: tuple[tuple[int, int], ...]) -> None:
        self.decodes, self.verify = decodes, verify

    def shape(self, prompts: Sequence[tuple[int, int]]) -> StepShape:
        rows = (*prompts, *self.verify)
        sampled = self.decodes[0] + len(prompts) + sum(tokens for tokens, _ in self.verify)
        return StepShape(rows, *self.decodes, sampled)


def _verifying(chunks: Mapping[str, Ints], prompt: NDArray[np.bool_], step: int) -> tuple[tuple[int, int], ...]:
    """Rows of a step that verify drafts: tokens, context."""
    there = (chunks["step"] == step) & ~prompt & (chunks["decodes"] == 0)
    return tuple(zip(chunks["tokens"][there].tolist(), chunks["context"][there].tolist(), strict=True))


def _ratio(cost: CostModel | None, part: StepShape, whole: StepShape) -> float:
    """Share of a step that a part of its rows would take alone."""
    if cost is None:
        return part.tokens / whole.tokens
    return min(1.0, cost.step_ns(part) / max(cost.step_ns(whole), 1))


def latency_parts(records: Records, rows: Rows, divided: StepParts) -> LatencyParts:
    """Where the latency of every request went, by its rows and what is divided of their steps."""
    before, after = _nothing(records), _nothing(records)
    ended = (records.requests["status"] >= 0) & (records.requests["finish_ns"] >= 0)
    lost = _Lost(records, rows, divided.prompt)
    _ahead(records, ended, before)
    _logged_rows(records, rows, divided, ended, lost, before, after)
    _decodes(records, rows, divided, ended, after)
    lost.add(records, ended, before, after)
    _rest(records, ended, before, after)
    if records.judged_ns is not None:
        _judged(records, records.judged_ns, before, after)
    return LatencyParts(before, after, divided.shared_by)


def _nothing(records: Records) -> dict[str, Ints]:
    return {name: np.zeros(len(records.requests["status"]), np.int64) for name in PARTS}


def _ahead(records: Records, ended: NDArray[np.bool_], before: dict[str, Ints]) -> None:
    """What comes before the first step."""
    r = records.requests
    ready = np.where(r["ready_ns"] >= 0, r["ready_ns"], r["arrival_ns"])
    scheduled = np.where(r["scheduled_ns"] >= 0, r["scheduled_ns"], r["finish_ns"])
    if records.first_tries is not None:
        first = r["arrival_ns"][np.arange(len(ready)) % records.first_tries]
        before["retry"][ended] = (r["arrival_ns"] - first)[ended]
    before["front_end"][ended] = (np.minimum(ready, scheduled) - r["arrival_ns"])[ended]
    before["queue"][ended] = np.maximum(scheduled - ready, 0)[ended]


def _judged(records: Records, judged_ns: Ints, before: dict[str, Ints], after: dict[str, Ints]) -> None:
    """Of an answer that was judged the client sees nothing before it was read: all of its latency comes before its first token."""
    read = (judged_ns >= 0) & (records.requests["status"] == Status.FINISHED)
    for name in PARTS:
        before[name][read] += after[name][read]
        after[name][read] = 0
    before["judge"][read] = (judged_ns - records.requests["finish_ns"])[read]


def _logged_rows(
    records: Records,
    rows: Rows,
    divided: StepParts,
    ended: NDArray[np.bool_],
    lost: _Lost,
    before: dict[str, Ints],
    after: dict[str, Ints],
) -> None:
    """Steps in which a request has a row of its own in the log: its prompt's, and some of its answer's."""
    r, step, owner = records.requests, rows.chunks["step"], rows.chunks["request"]
    end = records.steps["end_ns"][step]
    # A client that left sees nothing of what still runs for it.
    seen = ended[owner] & (end <= r["finish_ns"][owner]) & ~lost.inside
    early = (r["first_token_ns"][owner] < 0) | (end <= r["first_token_ns"][owner])
    own = np.where(divided.prompt, divided.own, 0)
    decode = np.where(divided.prompt, 0, divided.decode[step])
    other = divided.decode[step] + divided.prompts[step] - own - decode
    for name, ns in (
        ("own_prefill", own),
        ("decode", decode),
        ("other_prefill", other),
        ("transfer", divided.transfer[step]),
    ):
        for parts, there in ((before, seen & early), (after, seen & ~early)):
            np.add.at(parts[name], owner[there], ns[there])


def _decodes(
    records: Records, rows: Rows, divided: StepParts, ended: NDArray[np.bool_], after: dict[str, Ints]
) -> None:
    """Steps in which a request decodes along."""
    r, end, s = records.requests, records.steps["end_ns"], rows.stretches
    kept = ended[s["request"]]
    owner, first, last = s["request"][kept], s["first"][kept], s["last"][kept]
    through = last + 1
    for k in np.flatnonzero(r["status"][owner] != Status.FINISHED).tolist():  # those whose clients left earlier
        lo, hi = int(first[k]), int(through[k])
        through[k] = lo + np.searchsorted(end[lo:hi], r["finish_ns"][owner[k]], side="right")
    decodes = records.steps["decode_sequences"] > 0
    for name, ns in (("decode", divided.decode), ("other_prefill", divided.prompts), ("transfer", divided.transfer)):
        total = np.concatenate([[0], np.cumsum(np.where(decodes, ns, 0))])
        np.add.at(after[name], owner, total[through] - total[first])


def _rest(records: Records, ended: NDArray[np.bool_], before: dict[str, Ints], after: dict[str, Ints]) -> None:
    """What is left of the time since the first step: steps of others. They compute prompts alone, unless the request was left out
    of steps that decode. Of a client that left it is the step in flight then."""
    r = records.requests
    scheduled, done = ended & (r["scheduled_ns"] >= 0), records.finished
    first = np.where(r["first_token_ns"] >= 0, r["first_token_ns"], r["finish_ns"])
    running = [name for name in PARTS if name not in ("retry", "front_end", "queue")]
    skipped = np.zeros(len(done), dtype=bool)
    table = dict(zip(CHUNK_COLUMNS, records.chunks.T, strict=True))
    skipped[table["request"][table["tokens"] == 0]] = True
    for parts, since, until, cut in (
        (before, r["scheduled_ns"], first, "own_prefill"),
        (after, first, r["finish_ns"], "decode"),
    ):
        rest = until - since - np.sum([parts[name] for name in running], axis=0)
        for name, whose in (("left_out", skipped), ("other_prefill", ~skipped)):
            parts[name][scheduled & done & whose] += rest[scheduled & done & whose]
        parts[cut][scheduled & ~done] += rest[scheduled & ~done]


class _Lost:
    """Times in which requests were set back: from a preemption until the row that gives the next token.

    spans: request, begin and end in ns. inside: bool, of every row of `Rows.chunks`, whether it lies in one: it recomputes.
    """

    def __init__(self, records: Records, rows: Rows, prompt: NDArray[np.bool_]) -> None:
        steps, chunks = records.steps, rows.chunks
        self.inside = np.zeros(len(chunks["step"]), dtype=bool)
        self.spans: list[tuple[int, int, int]] = []
        if not len(records.preempted):
            return
        offset = np.searchsorted(steps["replica"], np.arange(int(steps["replica"].max()) + 1))
        by_request: dict[int, list[int]] = {}
        for k in np.flatnonzero(np.isin(chunks["request"], records.preempted[:, 2])).tolist():
            by_request.setdefault(int(chunks["request"][k]), []).append(k)
        until_row: dict[int, int] = {}  # last row of the span that a request is in
        for replica, number, request in records.preempted.tolist():
            at = int(offset[replica]) + number
            if until_row.get(request, -1) >= at:
                continue  # preempted again before it was back
            begin, end = int(steps["start_ns"][at]), int(records.requests["finish_ns"][request])
            until_row[request] = len(steps["step"])
            for k in by_request.get(request, ()):
                row = int(chunks["step"][k])
                if row < at:
                    continue
                if chunks["samples"][k]:
                    if prompt[k]:  # the end of what is recomputed
                        self.inside[k], until_row[request], end = True, row, int(steps["end_ns"][row])
                    else:  # swapped in again: an answer goes on
                        until_row[request], end = row - 1, int(steps["start_ns"][row])
                    break
                self.inside[k] = True
            self.spans.append((request, begin, end))

    def add(self, records: Records, ended: NDArray[np.bool_], before: dict[str, Ints], after: dict[str, Ints]) -> None:
        r = records.requests
        for request, begin, end in self.spans:
            if ended[request]:
                first, finish = int(r["first_token_ns"][request]), int(r["finish_ns"][request])
                parts = before if first < 0 or end <= first else after
                parts["preemption"][request] += max(min(end, finish) - begin, 0)
