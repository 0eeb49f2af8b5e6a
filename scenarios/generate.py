"""From a scenario to its requests."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from scenarios import mixture, traces
from scenarios.answer_lengths import multipliers, stretch, stretched
from scenarios.arrivals import ClosedLoop, draw_pauses
from scenarios.classes import Senders, ServiceClass, Tenant, draw_senders
from scenarios.errors import InputError
from scenarios.host_memory import check_pins
from scenarios.layouts import Conversations
from scenarios.prompts import Prompts
from scenarios.recorded import to_workload
from scenarios.recorded_sessions import SessionTrace, sessions_to_workload
from scenarios.schema import Scenario
from scenarios.transforms import cap_of, transformed
from scenarios.workload import Workload
from scenarios.workload_spec import WorkloadSpec
from serving.config import EngineConfig

Ints = NDArray[np.int64]


class Streams:
    """Random numbers by name: one generator a stream, so that changing one axis of a scenario never changes what another
    draws (law 15). within: what all names begin with."""

    def __init__(self, seed: int, within: str = "") -> None:
        self.seed = seed
        self.within = within

    def __call__(self, name: str) -> Generator:
        """The stream of that name, from its beginning. Its numbers depend on the seed and the name alone."""
        return np.random.default_rng([self.seed, zlib.crc32(f"{self.within}{name}".encode())])

    def of(self, name: str) -> Streams:
        """Streams of a part of the workload: a class, a tenant, a part of a mixture."""
        return Streams(self.seed, f"{self.within}{name}:")


def generate(scenario: Scenario) -> Workload:
    """Every request of a scenario, drawn before the run.

    Raises:
        InputError: a trace that cannot be read, or a workload without a single request.
    """
    spec, streams = scenario.workload, Streams(scenario.seed)
    if spec.mix is None:
        workload = _of_one(spec, scenario, streams)
    else:
        # By name: in which order a file lists the parts changes nothing.
        labels = sorted(spec.mix)
        parts = [_of_one(spec.mix[name], scenario, streams.of(f"mix:{name}"), name) for name in labels]
        workload = mixture.merged(parts, mixture.in_order(parts), labels)
    _limit_ttft(workload, scenario)
    check_pins(scenario, workload)
    workload.tries += scenario.escalations + scenario.retries
    if spec.predictor is not None:
        workload.predicted_tokens = spec.predictor.predict(workload, streams("predictor"))
    return workload


def _of_one(spec: WorkloadSpec, scenario: Scenario, streams: Streams, name: str = "") -> Workload:
    """The requests of a workload that is no mixture. name: as a part of one."""
    longer = stretch(multipliers(scenario, spec.transforms))

    def sent(cap: int | None) -> Workload:
        """cap: tokens after which answers end, and so what later prompts quote of them."""
        if not spec.replays:
            return _generated(spec, streams, name, longer, cap)
        return _replayed(spec, scenario.engine_config(), streams, longer, cap)

    workload = sent(cap_of(spec.transforms))
    if spec.replays:
        _classify(workload, spec, streams)
    if spec.transforms:
        workload = transformed(workload, spec.transforms, lambda: sent(None))
    if name and workload.service_class is None:
        workload.service_class, workload.classes = np.zeros(len(workload), dtype=np.int64), (name,)
    if name:
        workload.source = f"{name}: {workload.source}"
    return workload


def _replayed(spec: WorkloadSpec, config: EngineConfig, streams: Streams, longer: float, cap: int | None) -> Workload:
    """The requests of a trace; sessions without times start as the workload's arrivals say."""
    options, arrivals = spec.trace, spec.arrivals
    assert options is not None
    trace = traces.read(options)
    if not isinstance(trace, SessionTrace):
        workload = to_workload(trace, options, spec.max_tokens, config)
        _stretch(workload, spec, longer)
        return workload
    starts = None
    if arrivals is not None and not isinstance(arrivals, ClosedLoop):
        starts = partial(_start, arrivals, streams)
    return sessions_to_workload(trace, options, spec.max_tokens, config, starts, cap=cap, longer=longer)


def _start(arrivals: Any, streams: Streams, sessions: int) -> Ints:
    times: Ints = arrivals.draw(sessions, streams("arrivals"))
    return times


def _stretch(recorded: Workload, spec: WorkloadSpec, longer: float) -> None:
    """Makes a trace's answers `longer` times as long."""
    recorded.output_tokens = stretched(recorded.output_tokens, longer)
    if spec.max_tokens == "as_output":
        recorded.max_tokens = stretched(recorded.max_tokens, longer)


def _classify(recorded: Workload, spec: WorkloadSpec, streams: Streams) -> None:
    """Draws for every conversation of a trace of which class it is, where the trace does not say, and how hard its requests are;
    lengths and prompts stay the trace's."""
    n = len(recorded)
    conversation = np.where(recorded.session >= 0, recorded.session, n + np.arange(n))
    _, opening, member = np.unique(conversation, return_index=True, return_inverse=True)
    senders = draw_senders((), spec.classes, n, streams)[opening[member]]
    recorded.difficulty = _difficulty(spec, senders, n, streams)
    if spec.classes and recorded.service_class is None:
        recorded.service_class = senders.service_class
        recorded.classes, recorded.class_slo = tuple(c.name for c in spec.classes), _limits(spec)
        recorded.priority = recorded.priority + _priority(spec, senders)


def _generated(spec: WorkloadSpec, streams: Streams, name: str, longer: float, cap: int | None) -> Workload:
    """Draws a workload that is no trace. longer: what answers are multiplied by. cap: tokens after which they end."""
    times, turns, by_conversation = _starts(spec, streams)
    n = int(turns.sum())
    if n == 0:
        where = f"workload.mix.{name}" if name else "workload"
        raise InputError(f"{where}.arrivals: with this seed not one request is sent; raise a rate or a duration")
    senders = by_conversation[np.repeat(np.arange(len(turns)), turns)]
    first = np.cumsum(turns) - turns
    arrival = np.full(n, -1, dtype=np.int64)
    arrival[first] = times
    new = _own(spec, senders, "input", n, streams)
    output = stretched(_own(spec, senders, "output", n, streams), longer)
    declared = _declared(spec, senders, output)
    if cap is not None:  # before prompts are laid out, which quote what is left of answers
        declared = np.minimum(declared, cap)
    closed = spec.arrivals if isinstance(spec.arrivals, ClosedLoop) else None
    pauses = None if closed is None else draw_pauses(closed.think_time, n, streams("think"))
    difficulty = _difficulty(spec, senders, n, streams)
    priority = np.array([t.priority for t in spec.tenants] or [0], dtype=np.int64)[senders.tenant]
    priority += _priority(spec, senders)

    def laid_out(rows: Any, prompts: Prompts, turns: Ints, streams: Streams) -> Workload:
        """Requests `rows`, whole conversations, with prompts of one kind; turns: how many each conversation has."""
        layout = prompts.lay_out(new[rows], np.minimum(output, declared)[rows], turns, streams)
        return Workload(
            arrival_ns=arrival[rows],
            prompt_tokens=layout.prompt_tokens,
            output_tokens=output[rows],
            max_tokens=declared[rows],
            priority=priority[rows],
            tenant=senders.tenant[rows],
            session=layout.session,
            follows=layout.follows,
            think_ns=layout.think_ns if pauses is None else pauses[rows],
            tenants=tuple(t.name for t in spec.tenants) or ("default",),
            concurrency=None if closed is None else closed.concurrency,
            segment_offset=layout.segment_offset,
            segment_keys=layout.segment_keys or (),
            segment_tokens=layout.segment_tokens,
            segment_role=layout.segment_role,
            joins=layout.joins,
            service_class=senders.service_class[rows] if spec.classes else None,
            classes=tuple(c.name for c in spec.classes) or ("default",),
            class_slo=_limits(spec),
            difficulty=None if difficulty is None else difficulty[rows],
            source=f"{n:,} generated requests, arrivals {spec.arrivals.process}, seed {streams.seed}",  # type: ignore[union-attr]
        )

    groups, group = _prompts(spec, streams)
    if len(groups) == 1:
        _, prompts, own = groups[0]
        return laid_out(slice(None), prompts, turns, own)
    of_conversation = group[by_conversation.service_class]
    of_request = np.repeat(of_conversation, turns)
    used = [k for k in range(len(groups)) if (of_conversation == k).any()]
    rows = [np.flatnonzero(of_request == k) for k in used]
    parts = [
        laid_out(place, groups[k][1], turns[of_conversation == k], groups[k][2])
        for k, place in zip(used, rows, strict=True)
    ]
    return mixture.merged(parts, rows, [groups[k][0] for k in used])


def _prompts(spec: WorkloadSpec, streams: Streams) -> tuple[list[tuple[str, Prompts, Streams]], Ints]:
    """What prompts are made of: label, kind and streams of the workload's own and of each class that has its own; and
    which of them holds, `(classes,)`."""
    groups: list[tuple[str, Prompts, Streams]] = []
    if not spec.classes or any(c.prompts is None for c in spec.classes):
        groups.append(("", spec.prompts, streams))
    group = np.zeros(max(len(spec.classes), 1), dtype=np.int64)
    for code, c in enumerate(spec.classes):
        if c.prompts is not None:
            group[code] = len(groups)
            groups.append((c.name, c.prompts, streams.of(f"class:{c.name}")))
    return groups, group


def _starts(spec: WorkloadSpec, streams: Streams) -> tuple[Ints, Ints, Senders]:
    """When each conversation starts, how many turns it has, and who talks, `(conversations,)` each; without sessions a request
    is a conversation of one turn. `requests` counts turns, so the last conversation may be cut."""
    arrivals: Any = spec.arrivals
    n, times = spec.requests, None
    if n is None:
        times = arrivals.draw(None, streams("arrivals"))
        n = len(times)
    senders = draw_senders(spec.tenants, spec.classes, n, streams)
    groups, group = _prompts(spec, streams)
    turns = np.ones(n, dtype=np.int64)
    for k, (_, prompts, own) in enumerate(groups):
        if isinstance(prompts, Conversations):
            its = group[senders.service_class] == k
            turns[its] = prompts.sizes(int(its.sum()), own)  # in their order, as `lay_out` draws the rest of them
    if times is None:
        turns = turns[: int(np.searchsorted(np.cumsum(turns), n)) + 1]
        turns[-1] -= max(int(turns.sum()) - n, 0)
        times = arrivals.draw(len(turns), streams("arrivals"))
    turns = turns[: len(times)]
    return times, turns, senders[: len(turns)]


def _of_senders(spec: WorkloadSpec, senders: Senders) -> list[tuple[str, ServiceClass | Tenant, NDArray[np.bool_]]]:
    """Classes, then tenants: the name of its streams, itself, and which requests are its own, `(n,)`."""
    classes = [(f"class:{c.name}", c, senders.service_class == code) for code, c in enumerate(spec.classes)]
    return [*classes, *((f"tenant:{t.name}", t, senders.tenant == code) for code, t in enumerate(spec.tenants))]


def _own(spec: WorkloadSpec, senders: Senders, field: str, n: int, streams: Streams) -> NDArray[Any]:
    """A column, drawn for everybody from the workload's stream, and where a class or tenant has its own, from that one's: so
    that what one of them does moves nobody else's, `(n,)`."""
    common = getattr(spec, field)
    kind = np.float64 if field == "difficulty" else np.int64
    column: NDArray[Any] = np.zeros(n, dtype=kind) if common is None else common.draw(n, streams(field))
    for name, sender, its in _of_senders(spec, senders):
        own = getattr(sender, field, None)
        if own is not None:
            column = np.where(its, own.draw(n, streams.of(name)(field)), column)
    return column


def _declared(spec: WorkloadSpec, senders: Senders, output: Ints) -> Ints:
    """What clients declare, `(n,)`."""

    def declared(given: Any) -> Ints:
        return output.copy() if given == "as_output" else np.full(len(output), given, dtype=np.int64)

    column = declared(spec.max_tokens)
    for _, sender, its in _of_senders(spec, senders):
        if sender.max_tokens is not None:
            column = np.where(its, declared(sender.max_tokens), column)
    return column


def _difficulty(spec: WorkloadSpec, senders: Senders, n: int, streams: Streams) -> NDArray[np.float64] | None:
    """How hard each request is, `(n,)`; None where nobody says."""
    stated = spec.difficulty is not None or any(c.difficulty is not None for c in spec.classes)
    return _own(spec, senders, "difficulty", n, streams) if stated else None


def _priority(spec: WorkloadSpec, senders: Senders) -> Ints:
    """What its class adds to each request's priority, `(n,)`."""
    return np.array([c.priority for c in spec.classes] or [0], dtype=np.int64)[senders.service_class]


def _limits(spec: WorkloadSpec) -> tuple[Mapping[str, float | None] | None, ...]:
    """Limits of every class, or none at all."""
    limits = tuple(c.limits for c in spec.classes)
    return limits if any(one is not None for one in limits) else ()


def _limit_ttft(workload: Workload, scenario: Scenario) -> None:
    """Tells policies what each request is promised, where classes are promised something of their own or the order asks."""
    limits = [scenario.slo.ttft if of is None else of["ttft"] for of in workload.class_slo or [None]]
    own = any(of is not None and of["ttft"] is not None for of in workload.class_slo)
    asked = any(view.engine.policy == "deadline" for view in scenario.of_pools())
    if own or (asked and limits != [None]):
        ns = np.array([-1 if limit is None else round(limit * 1e9) for limit in limits], dtype=np.int64)
        codes = np.zeros(len(workload), dtype=np.int64) if workload.service_class is None else workload.service_class
        workload.ttft_ns = ns[codes if workload.class_slo else np.zeros_like(codes)]
