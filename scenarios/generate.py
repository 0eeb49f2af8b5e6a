"""From a scenario to its requests."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from scenarios import traces
from scenarios.arrivals import ClosedLoop, draw_pauses
from scenarios.errors import InputError
from scenarios.prompts import Sessions
from scenarios.recorded import to_workload
from scenarios.schema import Scenario
from scenarios.workload import Workload
from scenarios.workload_spec import WorkloadSpec

Ints = NDArray[np.int64]


class Streams:
    """Random numbers by name: one generator a stream, so that changing one axis of a scenario never changes what another
    draws (law 15)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, name: str) -> Generator:
        """The stream of that name, from its beginning. Its numbers depend on the seed and the name alone."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])


def generate(scenario: Scenario) -> Workload:
    """Every request of a scenario, drawn before the run.

    Raises:
        InputError: a trace that cannot be read, or a workload without a single request.
    """
    spec = scenario.workload
    if spec.trace is not None and spec.trace.path is not None:
        return to_workload(traces.read(spec.trace), spec.trace, spec.max_tokens, scenario.engine_config())
    if spec.arrivals is None or spec.input is None or spec.output is None:
        raise InputError("workload: arrivals, input and output are needed where there is no trace")
    streams = Streams(scenario.seed)
    times, turns = _starts(spec, streams)
    n = int(turns.sum())
    if n == 0:
        raise InputError("workload.arrivals: with this seed not one request is sent; raise a rate or a duration")
    first = np.cumsum(turns) - turns
    arrival = np.full(n, -1, dtype=np.int64)
    arrival[first] = times
    new = spec.input.draw(n, streams("input"))
    output = spec.output.draw(n, streams("output"))
    declared = output.copy() if spec.max_tokens == "as_output" else np.full(n, spec.max_tokens, dtype=np.int64)
    layout = spec.prompts.lay_out(new, np.minimum(output, declared), turns, streams)
    tenant, priority, names = _tenants(spec, turns, streams)
    closed = spec.arrivals if isinstance(spec.arrivals, ClosedLoop) else None
    return Workload(
        arrival_ns=arrival,
        prompt_tokens=layout.prompt_tokens,
        output_tokens=output,
        max_tokens=declared,
        priority=priority,
        tenant=tenant,
        session=layout.session,
        follows=layout.follows,
        think_ns=layout.think_ns if closed is None else draw_pauses(closed.think_time, n, streams("think")),
        tenants=names,
        concurrency=None if closed is None else closed.concurrency,
        segment_offset=layout.segment_offset,
        segment_keys=layout.segment_keys or (),
        segment_tokens=layout.segment_tokens,
        source=f"{n:,} generated requests, arrivals {spec.arrivals.process}, seed {scenario.seed}",
    )


def _starts(spec: WorkloadSpec, streams: Streams) -> tuple[Ints, Ints]:
    """When each conversation starts, and how many turns it has, both `(conversations,)`; without sessions a request is a
    conversation of one turn. `requests` counts turns, so the last conversation may be cut."""
    arrivals: Any = spec.arrivals
    n = spec.requests
    if not isinstance(spec.prompts, Sessions):
        times = arrivals.draw(n, streams("arrivals"))
        return times, np.ones(len(times), dtype=np.int64)
    if n is None:
        times = arrivals.draw(None, streams("arrivals"))
        return times, spec.prompts.turns.draw(len(times), streams("turns"))
    turns = spec.prompts.turns.draw(n, streams("turns"))
    ends = np.cumsum(turns)
    turns = turns[: int(np.searchsorted(ends, n)) + 1]
    turns[-1] -= max(int(turns.sum()) - n, 0)
    times = arrivals.draw(len(turns), streams("arrivals"))
    return times, turns[: len(times)]


def _tenants(spec: WorkloadSpec, turns: Ints, streams: Streams) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Tenant and priority of every request, and the tenants' names; a conversation has one tenant."""
    n = int(turns.sum())
    if not spec.tenants:
        return np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), ("default",)
    shares = np.cumsum([tenant.weight for tenant in spec.tenants])
    chosen = np.searchsorted(shares, streams("tenants").random(len(turns)) * shares[-1], side="right")
    tenant = np.repeat(chosen.astype(np.int64), turns)
    priority = np.array([t.priority for t in spec.tenants], dtype=np.int64)[tenant]
    return tenant, priority, tuple(t.name for t in spec.tenants)
