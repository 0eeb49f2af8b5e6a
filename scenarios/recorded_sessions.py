"""Recorded sessions: requests that wait for the answers to others, and how they become a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from scenarios.answer_lengths import stretched
from scenarios.contexts import Said, write_prompt
from scenarios.errors import InputError
from scenarios.layouts import Segments
from scenarios.recorded import Blocks, Ints, quote
from scenarios.trace_options import TraceOptions
from scenarios.workload import Workload
from serving.config import EngineConfig

Starts = Callable[[int], Ints]
"""When each of n sessions starts, in ns, non-decreasing."""


@dataclass
class Call:
    """One request of a session.

    after: calls that must have finished, by position; none for one that opens its session. pause_ns: from the last of their
        answers to this call.
    context: what its prompt says, where the trace tells it; else `prompt_tokens`, and `ids` of its blocks.
    turn: of the person.
    """

    line: int
    session: int
    after: tuple[int, ...]
    pause_ns: int
    output_tokens: int
    prompt_tokens: int = 0
    ids: Sequence[int] = ()
    context: Sequence[Said] = ()
    turn: int = 0


@dataclass
class SessionTrace:
    """What a reader found.

    calls: nobody waits for a later one, and a session's are in a row. start_ns: of each session, from any origin; None where the
        trace does not say. block_tokens: text of a block id. tenant: of each session, index into `tenants`.
    unsent: what was left out because it had no answer or no prompt, for messages.
    """

    path: Path
    calls: list[Call]
    start_ns: list[int] | None
    block_tokens: int = 0
    tenant: list[int] = field(default_factory=list)
    tenants: tuple[str, ...] = ("default",)
    unsent: str = ""


def sessions_to_workload(
    trace: SessionTrace,
    options: TraceOptions,
    max_tokens: int | str,
    config: EngineConfig,
    starts: Starts | None,
    *,
    cap: int | None = None,
    longer: float = 1.0,
) -> Workload:
    """The requests of recorded sessions, session by session in order of their starts. Pauses are those of the trace: a tool or a
    person takes no less time because more sessions run.

    starts: where the trace does not say when sessions start. cap: tokens after which answers end. longer: answers are so many
    times as long.

    Raises:
        InputError: nobody says when sessions start, or nothing is left.
    """
    if not trace.calls:
        raise InputError(f"{trace.path}: not one of its calls has both a prompt and an answer")
    begin = _starts(trace, options, starts)
    calls = _in_order(trace, begin)[: options.limit]
    factor = 1.0 if options.length_scale == "fit" else float(options.length_scale)
    room = min(config.max_model_len, config.usable_blocks * config.block_size + 1)
    for _ in range(30):
        workload = _laid_out(trace, calls, begin, options, max_tokens, cap, longer, factor)
        answers = np.minimum(workload.output_tokens, workload.max_tokens)
        longest = int((workload.prompt_tokens + answers).max())
        if options.length_scale != "fit" or longest <= room:
            break
        # Each piece of a prompt keeps a token at least, so one step may not be enough.
        factor *= min(0.999, room / longest)
    else:
        raise InputError(
            f"{trace.path}: its longest prompt has too many parts to fit {room} tokens; raise engine.max_model_len or KV memory"
        )
    sessions = len({call.session for call in calls})
    parts = [f"{trace.path.name}: {len(calls):,} of {len(trace.calls):,} requests in {sessions:,} sessions"]
    parts += [f"starts {options.speedup:g} times as fast"] if options.speedup != 1.0 else []
    parts += [f"lengths x {factor:.4g}"] if factor != 1.0 else []
    parts += [trace.unsent] if trace.unsent else []
    return replace(workload, source=", ".join(parts))


def _starts(trace: SessionTrace, options: TraceOptions, starts: Starts | None) -> Ints:
    """When each session starts, in ns from the first."""
    sessions = max(call.session for call in trace.calls) + 1
    if trace.start_ns is None:
        if starts is None:
            raise InputError(
                f"{trace.path}: its sessions do not say when they start; say it in workload.arrivals (of sessions), for instance "
                "{process: poisson, rate: 0.1}"
            )
        begin = starts(sessions)
        if len(begin) < sessions:
            raise InputError(
                f"{trace.path}: workload.arrivals holds {len(begin)} starts, but there are {sessions} sessions; lengthen it"
            )
    else:
        begin = np.array(trace.start_ns, dtype=np.int64)
        begin -= begin.min()
    since: Ints = begin if options.speedup == 1.0 else np.rint(begin / options.speedup).astype(np.int64)
    return since


def _in_order(trace: SessionTrace, begin: Ints) -> list[Call]:
    """Calls session by session in order of their starts, each with the others by their new positions."""
    order = sorted(
        range(len(trace.calls)), key=lambda i: (int(begin[trace.calls[i].session]), trace.calls[i].session, i)
    )
    place = {old: new for new, old in enumerate(order)}
    return [
        replace(
            trace.calls[i],
            after=tuple(place[j] for j in trace.calls[i].after),
            context=[s if s.row < 0 else s._replace(row=place[s.row]) for s in trace.calls[i].context],
        )
        for i in order
    ]


def _laid_out(
    trace: SessionTrace,
    calls: list[Call],
    begin: Ints,
    options: TraceOptions,
    max_tokens: int | str,
    cap: int | None,
    longer: float,
    factor: float,
) -> Workload:
    n = len(calls)

    def scaled(tokens: int) -> int:
        return tokens if factor == 1.0 or not tokens else max(1, int(tokens * factor))

    output = np.array([scaled(call.output_tokens) for call in calls], dtype=np.int64)
    output = stretched(output, longer)
    declared = np.full(n, max_tokens, dtype=np.int64) if isinstance(max_tokens, int) else output.copy()
    declared = declared if cap is None else np.minimum(declared, cap)
    opens = np.array([not call.after for call in calls])
    session = np.array([call.session for call in calls], dtype=np.int64)
    joins = [(i, other) for i, call in enumerate(calls) for other in call.after[1:]]
    workload = Workload(
        arrival_ns=np.where(opens, begin[session], -1),
        prompt_tokens=np.array([scaled(call.prompt_tokens) for call in calls], dtype=np.int64),
        output_tokens=output,
        max_tokens=declared,
        priority=np.zeros(n, dtype=np.int64),
        tenant=np.array(trace.tenant or [0] * (int(session.max()) + 1), dtype=np.int64)[session],
        session=session,
        follows=np.array([call.after[0] if call.after else -1 for call in calls], dtype=np.int64),
        think_ns=np.array([call.pause_ns if call.after else 0 for call in calls], dtype=np.int64),
        tenants=trace.tenants,
        joins=np.array(joins, dtype=np.int64).reshape(-1, 2) if joins else None,
    )
    if trace.block_tokens:
        offset = np.concatenate([[0], np.cumsum([len(call.ids) for call in calls])]).astype(np.int64)
        ids = np.fromiter((i for call in calls for i in call.ids), dtype=np.int64, count=int(offset[-1]))
        whole = np.array([call.prompt_tokens for call in calls], dtype=np.int64)
        quote(workload, Blocks(offset, ids, trace.block_tokens), whole, factor)
        return workload
    answers = np.minimum(output, declared).tolist()
    segments = Segments()
    for call in calls:
        write_prompt(
            segments,
            call.context,
            call.turn,
            options.history,
            lambda said: scaled(said.tokens) if said.row < 0 else answers[said.row],
        )
    layout = segments.layout(workload.session, workload.follows, workload.think_ns)
    return replace(
        workload,
        prompt_tokens=layout.prompt_tokens,
        segment_offset=layout.segment_offset,
        segment_keys=layout.segment_keys or (),
        segment_tokens=layout.segment_tokens,
        segment_role=layout.segment_role,
    )
