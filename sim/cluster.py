"""A deployment on a simulated clock (integer nanoseconds): its steps cost what a model says, or really run.

What happens when is decided in `sim.deployment`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from scenarios.collecting import uncollected
from scenarios.errors import InputError
from scenarios.generate import Streams
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.fast_async_scheduler import fast_scheduler
from serving.fast_scheduler import FastScheduler
from serving.plan import Executor
from serving.records import Records, RequestLog, StepLog
from serving.request import Request
from serving.routing import Router, Routing, make_router
from serving.scheduler import LivelockError, Scheduler
from sim.acceptance import Acceptance
from sim.cost import CostModel
from sim.deployment import TOO_LONG, Deployment
from sim.drafting import Drafting
from sim.escalation import Escalation
from sim.fast_async_replica import fast_replica
from sim.front import NOTHING, Front
from sim.host_link import HostLink
from sim.noise import NoisyCost, NoisyExecutor, StepNoise
from sim.pool import Pool
from sim.profile_parts import Noise
from sim.progress import Tell, TellingDeployment
from sim.replica import AnyReplica, CostExecutor, Replica

Observer = Callable[[Request, int], None]
MakeReplica = Callable[[int, Pool, RequestLog, StepLog, Observer | None], AnyReplica]


def simulate(
    engine: EngineConfig,
    workload: Workload,
    cost: CostModel,
    *,
    replicas: int = 1,
    router: str | Routing = "round_robin",
    leaps: bool = True,
    fast: bool = True,
    horizon_ns: int | None = None,
    acceptance: Acceptance | None = None,
    drafting: Drafting | None = None,
    noise: Noise | None = None,
    link: HostLink | None = None,
    seed: int = 0,
    front: Front = NOTHING,
    progress: Tell | None = None,
) -> Records:
    """Runs `workload` on `replicas` engines whose steps cost what `cost` says: `simulate_pools` with a single pool."""
    pool = Pool(engine, cost, replicas, acceptance=acceptance, drafting=drafting, noise=noise, link=link)
    return simulate_pools(
        [pool],
        workload,
        router=router,
        leaps=leaps,
        fast=fast,
        horizon_ns=horizon_ns,
        seed=seed,
        front=front,
        progress=progress,
    )


def simulate_pools(
    pools: Sequence[Pool],
    workload: Workload,
    *,
    router: str | Routing = "round_robin",
    leaps: bool = True,
    fast: bool = True,
    horizon_ns: int | None = None,
    seed: int = 0,
    front: Front = NOTHING,
    escalation: Escalation | None = None,
    progress: Tell | None = None,
) -> Records:
    """Runs `workload` on the replicas of all pools, numbered pool by pool.

    Args:
        leaps: quiet stretches of decode steps are taken at once; the records are the same without (law 7).
        fast: use the incremental scheduler where it applies; the records are the same without.
        router: its name, or also its options. With one that asks prefix caches nothing is fast.
        horizon_ns: end of the run; None runs until nothing is left to do.
        seed: of the router's draws, and of what steps take more or less than their cost model says; every leap is then a step long.
        front: what stands before the replicas. escalation: what a judge says of answers, where the router is a cascade with one.
        progress: told how far the run is, about a hundred times; the records are the same with it, and what it raises ends the run.
    """
    chosen = make_router(router, Streams(seed)("routing"), len(workload))

    def make(number: int, pool: Pool, requests: RequestLog, steps: StepLog, on_finish: Observer | None) -> AnyReplica:
        engine, cost = pool.engine, pool.cost
        if cost is None:
            raise ValueError(f"pool {pool.name}: a simulation needs a cost model")
        if engine.speculation != "none" and pool.acceptance is None:
            raise ValueError(f"speculation {engine.speculation}: which drafts stand is not said; give an acceptance")
        drawn = None if pool.noise is None else StepNoise(pool.noise, seed, number)
        if fast and not chosen.reads_cache and FastScheduler.supports(engine):
            scheduler = fast_scheduler(engine)
            priced = cost if drawn is None else NoisyCost(cost, drawn, scheduler)
            return fast_replica(number, scheduler, priced, requests, steps, on_finish, leaps)
        executor = (
            CostExecutor(cost, pool.acceptance, pool.drafting, pool.link)
            if drawn is None
            else NoisyExecutor(cost, drawn, pool.acceptance, pool.drafting, pool.link)
        )
        return Replica(number, Scheduler(engine), executor, requests, steps, on_finish)

    with uncollected():
        return _run(pools, workload, make, chosen, horizon_ns, front, escalation, progress)


def run_on_executors(
    engine: EngineConfig,
    workload: Workload,
    executors: Sequence[Executor],
    *,
    router: str | Routing = "round_robin",
    horizon_ns: int | None = None,
    front: Front = NOTHING,
    seed: int = 0,
) -> Records:
    """`run_pools_on_executors` with a single pool, of a replica an executor."""
    pool = Pool(engine, replicas=len(executors))
    return run_pools_on_executors(
        [pool], workload, executors, router=router, horizon_ns=horizon_ns, front=front, seed=seed
    )


def run_pools_on_executors(
    pools: Sequence[Pool],
    workload: Workload,
    executors: Sequence[Executor],
    *,
    router: str | Routing = "round_robin",
    horizon_ns: int | None = None,
    front: Front = NOTHING,
    seed: int = 0,
    escalation: Escalation | None = None,
) -> Records:
    """Hardware in the loop: an executor for each replica, numbered pool by pool; every step really runs there and its measured
    duration advances the simulated clock. Arrivals, routing and ties are those of `simulate_pools`."""

    def make(number: int, pool: Pool, requests: RequestLog, steps: StepLog, on_finish: Observer | None) -> AnyReplica:
        return Replica(number, Scheduler(pool.engine), executors[number], requests, steps, on_finish)

    chosen = make_router(router, Streams(seed)("routing"), len(workload))
    return _run(pools, workload, make, chosen, horizon_ns, front, escalation)


def _run(
    pools: Sequence[Pool],
    workload: Workload,
    make: MakeReplica,
    router: Router,
    horizon_ns: int | None,
    front: Front,
    escalation: Escalation | None,
    progress: Tell | None = None,
) -> Records:
    for pool in pools:
        if pool.replicas < 1:
            raise ValueError(f"replicas: found {pool.replicas}, at least 1 is needed")
    homes = [pool for pool in pools for _ in range(pool.replicas)]
    requests = workload.request_log()
    logs = [StepLog(number, pool.engine.speculation != "none") for number, pool in enumerate(homes)]
    given = (homes, workload, requests, router, horizon_ns, front, escalation)
    run = Deployment(*given) if progress is None else TellingDeployment(progress, *given)
    observer = run.react if run.observed else None
    run.replicas = [make(number, pool, requests, logs[number], observer) for number, pool in enumerate(homes)]
    numbers = [number for number, pool in enumerate(pools) for _ in range(pool.replicas)]
    for replica, number in zip(run.replicas, numbers, strict=True):
        replica.pool = number
    try:
        run.go()
    except LivelockError as error:
        raise InputError(f"engine: {error}") from error
    except struct.error as error:  # a time that no column holds
        raise InputError(TOO_LONG) from error
    info: dict[str, object] = {} if len(pools) == 1 else {"pools": [pool.replicas for pool in pools]}
    if run.ladder is not None:
        info["ladder"] = run.ladder.history
    if progress is not None:
        progress(1.0)
    records = workload.records(requests, logs, info)
    records.judged_ns = run.judged_ns
    return records
