"""A simulated deployment: clients, a router and replicas on SimPy's clock (integer nanoseconds).

With an open loop the only events are the arrivals: each advances the replicas to its own instant, so that a quiet stretch of
steps costs one look, and they come in order, so that nothing needs to be put on SimPy's heap. Where clients react to finishes
(closed loop, later turns of a session) the ends and starts of steps are events too, ordered at one instant as
arrival < step end < reaction < step start.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Sequence
from functools import partial

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import NORMAL, Event, EventPriority

from scenarios.clients import Clients, Sends
from scenarios.errors import InputError
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.fast_async_scheduler import fast_scheduler
from serving.fast_scheduler import FastScheduler
from serving.plan import Executor
from serving.records import Records, RequestLog, StepLog
from serving.request import Request
from serving.routing import ROUTERS, Router
from serving.scheduler import LivelockError, Scheduler
from sim.acceptance import Acceptance
from sim.cost import CostModel
from sim.drafting import Drafting
from sim.fast_async_replica import fast_replica
from sim.host_link import HostLink
from sim.noise import NoisyCost, NoisyExecutor, StepNoise
from sim.pool import Pool
from sim.profile_parts import Noise
from sim.replica import AnyReplica, CostExecutor, Replica

_END_OF_TIME = 1 << 62
# At one instant, after arrivals (SimPy's NORMAL is 1); step ends in the order of the replicas' numbers.
_STEP_END, _REACTION, _STEP_START = 2, EventPriority(1 << 30), EventPriority((1 << 30) + 1)

Observer = Callable[[Request, int], None]
MakeReplica = Callable[[int, Pool, RequestLog, StepLog, Observer | None], AnyReplica]


def simulate(
    engine: EngineConfig,
    workload: Workload,
    cost: CostModel,
    *,
    replicas: int = 1,
    router: str = "round_robin",
    leaps: bool = True,
    fast: bool = True,
    horizon_ns: int | None = None,
    acceptance: Acceptance | None = None,
    drafting: Drafting | None = None,
    noise: Noise | None = None,
    link: HostLink | None = None,
    seed: int = 0,
) -> Records:
    """Runs `workload` on `replicas` engines whose steps cost what `cost` says: `simulate_pools` with a single pool."""
    pool = Pool(engine, cost, replicas, acceptance=acceptance, drafting=drafting, noise=noise, link=link)
    return simulate_pools([pool], workload, router=router, leaps=leaps, fast=fast, horizon_ns=horizon_ns, seed=seed)


def simulate_pools(
    pools: Sequence[Pool],
    workload: Workload,
    *,
    router: str = "round_robin",
    leaps: bool = True,
    fast: bool = True,
    horizon_ns: int | None = None,
    seed: int = 0,
) -> Records:
    """Runs `workload` on the replicas of all pools, numbered pool by pool.

    Args:
        leaps: quiet stretches of decode steps are taken at once; the records are the same without (law 7).
        fast: use the incremental scheduler where it applies; the records are the same without.
        horizon_ns: end of the run; None runs until nothing is left to do.
        seed: of what steps take more or less than their cost model says; every leap is then a step long.
    """

    def make(number: int, pool: Pool, requests: RequestLog, steps: StepLog, on_finish: Observer | None) -> AnyReplica:
        engine, cost = pool.engine, pool.cost
        if cost is None:
            raise ValueError(f"pool {pool.name}: a simulation needs a cost model")
        if engine.speculation != "none" and pool.acceptance is None:
            raise ValueError(f"speculation {engine.speculation}: which drafts stand is not said; give an acceptance")
        drawn = None if pool.noise is None else StepNoise(pool.noise, seed, number)
        if fast and FastScheduler.supports(engine):
            scheduler = fast_scheduler(engine)
            priced = cost if drawn is None else NoisyCost(cost, drawn, scheduler)
            return fast_replica(number, scheduler, priced, requests, steps, on_finish, leaps)
        executor = (
            CostExecutor(cost, pool.acceptance, pool.drafting, pool.link)
            if drawn is None
            else NoisyExecutor(cost, drawn, pool.acceptance, pool.drafting, pool.link)
        )
        return Replica(number, Scheduler(engine), executor, requests, steps, on_finish)

    collecting = gc.isenabled()
    gc.disable()  # a simulation makes no cycles of objects: looking for them finds nothing and takes a tenth of its time
    try:
        return _run(pools, workload, make, router, horizon_ns)
    finally:
        if collecting:
            gc.enable()


def run_on_executors(
    engine: EngineConfig,
    workload: Workload,
    executors: Sequence[Executor],
    *,
    router: str = "round_robin",
    horizon_ns: int | None = None,
) -> Records:
    """`run_pools_on_executors` with a single pool, of a replica an executor."""
    pool = Pool(engine, replicas=len(executors))
    return run_pools_on_executors([pool], workload, executors, router=router, horizon_ns=horizon_ns)


def run_pools_on_executors(
    pools: Sequence[Pool],
    workload: Workload,
    executors: Sequence[Executor],
    *,
    router: str = "round_robin",
    horizon_ns: int | None = None,
) -> Records:
    """Hardware in the loop: an executor for each replica, numbered pool by pool; every step really runs there and its measured
    duration advances the simulated clock. Arrivals, routing and ties are those of `simulate_pools`."""

    def make(number: int, pool: Pool, requests: RequestLog, steps: StepLog, on_finish: Observer | None) -> AnyReplica:
        return Replica(number, Scheduler(pool.engine), executors[number], requests, steps, on_finish)

    return _run(pools, workload, make, router, horizon_ns)


def _run(pools: Sequence[Pool], workload: Workload, make: MakeReplica, router: str, horizon_ns: int | None) -> Records:
    for pool in pools:
        if pool.replicas < 1:
            raise ValueError(f"replicas: found {pool.replicas}, at least 1 is needed")
    homes = [pool for pool in pools for _ in range(pool.replicas)]
    requests = workload.request_log()
    logs = [StepLog(number, pool.engine.speculation != "none") for number, pool in enumerate(homes)]
    run = _Run(homes, workload, requests, ROUTERS[router](), horizon_ns)
    observer = run.react if run.observed else None
    run.replicas = [make(number, pool, requests, logs[number], observer) for number, pool in enumerate(homes)]
    try:
        run.go()
    except LivelockError as error:
        raise InputError(f"engine: {error}") from error
    return workload.records(requests, logs, {} if len(pools) == 1 else {"pools": [pool.replicas for pool in pools]})


class _Run:
    """State of one run: the environment, the replicas, and who is to be told what.

    homes: the pool of each replica.
    """

    def __init__(
        self,
        homes: Sequence[Pool],
        workload: Workload,
        requests: RequestLog,
        router: Router,
        horizon_ns: int | None,
    ) -> None:
        self.homes = homes
        self.workload = workload
        self.requests = requests
        self.router = router
        self.horizon_ns = horizon_ns
        self.env = simpy.Environment(initial_time=0)
        self.replicas: list[AnyReplica] = []
        self.starting: set[AnyReplica] = set()  # at the end of this instant
        self.clients = Clients(workload)
        self.observed = self.clients.react
        of_pool = {id(p): p.engine.fits(workload.prompt_tokens, workload.max_tokens).tolist() for p in homes}
        self.fits: list[list[bool]] = [of_pool[id(pool)] for pool in homes]  # by replica, then by request
        self.on_arrival: list[Callable[[Event], None]] = []

    def go(self) -> None:
        workload, end = self.workload, _END_OF_TIME if self.horizon_ns is None else self.horizon_ns + 1
        if workload.concurrency is not None:
            self._send_later(self.clients.first())
        elif self.observed:
            arrivals = self._arrivals()
            self.on_arrival.append(arrivals.send)
            next(arrivals)
        else:
            opening = self.clients.opening
            self._open_loop(opening[: int(np.searchsorted(workload.arrival_ns[opening], end))])
        if self.horizon_ns is None:
            self.env.run()
        else:
            self.env.run(until=end)
        for replica in self.replicas:
            replica.advance(end)
            if self.horizon_ns is None and replica.has_work:
                raise InputError("the run lasts longer than the clock can count (146 years); are the step costs right?")
            replica.close_open(end)

    def _arrivals(self) -> Generator[None, Event, None]:
        """Sends the requests of an open loop: a process, but for its one event that comes again and again. (SimPy's own, with
        a timeout an arrival, would cost as much as a leap.)"""
        now = 0
        arrival = Event(self.env)
        arrival._ok, arrival._value = True, None
        for i, at in self.clients.first():
            if at > now:
                arrival.callbacks = self.on_arrival
                self.env.schedule(arrival, NORMAL, at - now)
                yield
                now = at
            self.send(i, now)
        yield

    def _open_loop(self, rows: NDArray[np.int64]) -> None:
        """Sends requests `rows`, in order, when nobody reacts to finishes: without any other event no heap is needed."""
        fits = self.fits[0]
        only = self.replicas[0] if len(self.replicas) == 1 else None
        for request in self.workload.requests(rows):
            now = request.arrival_ns
            if only is not None and fits[request.index]:  # what `route` comes to
                only.advance(now)
                only.submit(request, now)
            else:
                self.route(request, now)

    def send(self, i: int, now: int) -> None:
        """A client sends request i now."""
        self.route(self.workload.request(i, now), now)

    def route(self, request: Request, now: int) -> None:
        """A request that was sent now is rejected for good, or goes to a replica."""
        row = request.index % len(self.workload)
        if not any(fits[row] for fits in self.fits):
            self._reject(request, now, 0)
            return
        number = 0
        if len(self.replicas) > 1:
            if self.router.reads_state:
                for replica in self.replicas:
                    replica.advance(now)
            number = self.router.choose(request, self.replicas)
            if not self.fits[number][row]:
                self._reject(request, now, number)
                return
        chosen = self.replicas[number]
        chosen.advance(now)
        if self.observed:
            if chosen.ends is None:
                self._start_later(chosen)
            elif chosen.cut(now):
                self._end_later(chosen)
        chosen.submit(request, now)

    def _reject(self, request: Request, now: int, number: int) -> None:
        """Replica `number` could never run it."""
        reason = self.homes[number].engine.why_it_can_never_run(request.prompt_tokens, request.max_tokens)
        self.requests.reject(request, str(reason), now)
        self._send_later(self.clients.gave_up(now))

    # -- clients that react to finishes --------------------------------------------------------------------------------

    def react(self, request: Request, now: int) -> None:
        """The answer of `request` is complete: its client sends what depends on it."""
        self._send_later(self.clients.answered(request.index, now))

    def _send_later(self, sends: Sends) -> None:
        for i, at in sends:
            delay = at - int(self.env.now)
            # A reaction without a pause belongs to the instant of the step end that caused it, before any step starts.
            self._after(delay, NORMAL if delay else _REACTION, partial(self.send, i, at))

    def _after(self, delay: int, priority: EventPriority, action: Callable[[], None]) -> None:
        event = Event(self.env)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: action())
        self.env.schedule(event, priority, delay)

    def _start_later(self, replica: AnyReplica) -> None:
        """The idle replica starts its next step at the end of this instant."""
        if replica in self.starting:
            return
        self.starting.add(replica)

        def start() -> None:
            self.starting.remove(replica)
            if replica.ends is None and replica.has_work:
                replica.begin(_END_OF_TIME)
                self._go_on_alone(replica)
                self._end_later(replica)

        self._after(0, _STEP_START, start)

    def _go_on_alone(self, replica: AnyReplica) -> None:
        """Ends and starts that nobody reacts to, before anything else happens, need no events."""
        until = self.env.peek()
        while replica.ends_quietly and replica.ends is not None and replica.ends < until:
            replica.complete()
            replica.begin(_END_OF_TIME)

    def _end_later(self, replica: AnyReplica) -> None:
        """When the step in flight ends its tokens are out. A leap that was cut meanwhile ends at another time."""
        ends = replica.ends
        assert ends is not None

        def end() -> None:
            if replica.ends == ends:
                replica.complete()
                self._start_later(replica)

        self._after(ends - int(self.env.now), EventPriority(_STEP_END + replica.number), end)
