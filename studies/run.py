"""One scenario, run: simulated on a cost model, or executed on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import scenarios
from scenarios import answer_lengths
from scenarios.errors import InputError
from scenarios.schema import Scenario
from scenarios.workload import Workload
from serving.economics import Account
from serving.metrics import summary
from serving.plan import Executor
from serving.records import Records
from serving.routing import Routing
from sim.cost import CostModel
from sim.host_link import link_of
from sim.profile import Profile
from sim.replay import ReplayReport, replay
from studies.aspects import (
    answers,
    conversations,
    economics,
    front,
    given_up,
    pools,
    quality,
    senders,
    speculation,
    step_costs,
)
from studies.aspects.binding import binding
from studies.aspects.pools import Costs
from studies.aspects.step_costs import profile_of
from studies.progress import DRAWN, SIMULATED, Counted, Progress, Told, nobody, of_simulation
from studies.provenance import versions
from studies.results import Run
from studies.statistics import steady_state

if TYPE_CHECKING:
    from gpu_backend.engine import Engine

Clock = Literal["device", "wall"]
_ON_CPUS = {"dtype": ("float32", "bfloat16", "int8", "int4"), "kv_cache_dtype": ("float32", "bfloat16", "int8", "fp8")}
"""Precisions that the CPU engine computes in, by field of the engine section."""


def simulate(
    scenario: Scenario | str | Path,
    *,
    workload: Workload | None = None,
    cost: Costs | None = None,
    percentiles: tuple[float, ...] = (50, 90, 95, 99),
    progress: Progress | None = None,
) -> Run:
    """Runs a scenario, or the one of that file or shipped name, on the simulated clock.

    workload: the scenario's own, if it was generated before. cost: instead of what the scenario asks for; of several pools, one each.
    progress: called about a hundred times at most, with a part that never falls and is 1 at the end; what it raises ends the run.
    """
    tell = progress or nobody
    scenario = loaded(scenario)
    if workload is None:
        tell("drawing requests", 0.0)
        workload = scenarios.generate(scenario)
    costs = pools.costs_of(scenario, cost)
    tell("simulating", DRAWN)
    records = _simulated(scenario, workload, costs, None if progress is None else partial(of_simulation, progress))
    tell("summing up", SIMULATED)
    run = describe(scenario, workload, records, way="simulate", clock="simulated", cost=costs, percentiles=percentiles)
    tell("summing up", 1.0)
    return run


def beginning(
    scenario: Scenario | str | Path, requests: int, workload: Workload | None = None, *, cost: Costs | None = None
) -> Run | None:
    """The same run, cut when request number `requests` (from 0) of those that wait for nobody's answer arrives: something to show
    early. What has ended by then is, to the nanosecond, what the whole run will say of it.

    workload: the scenario's own, if it was generated before; it is not changed. cost: as of `simulate`.

    Returns:
        None where it would not be shorter: so many requests are not sent, all are sent at once or as answers come (closed loop),
        or the scenario's own horizon comes first.
    """
    scenario = loaded(scenario)
    workload = scenarios.generate(scenario) if workload is None else workload
    arrivals = np.sort(workload.arrival_ns[workload.follows < 0])
    if workload.concurrency is not None or not 0 <= requests < len(arrivals):
        return None
    horizon, own = int(arrivals[requests]), _horizon_ns(scenario)
    if horizon <= arrivals[0] or (own is not None and horizon >= own):
        return None
    return simulate(scenario.model_copy(update={"horizon": horizon / 1e9}), workload=workload, cost=cost)


def simulated_figures(scenario: Scenario, cost: Costs | None = None) -> tuple[dict[str, Any], Records]:
    """The summary of a simulation, without what else a report says of it: half of the time of a short run."""
    if scenario.pools:  # their answers are judged from all that is said of each
        run = simulate(scenario, cost=cost)
        return run.summary, run.records
    workload, costs = scenarios.generate(scenario), pools.costs_of(scenario, cost)
    records = _simulated(scenario, workload, costs)
    account = economics.bill(scenario, records, costs)
    talk = conversations.described(workload, records, scenario.engine_config().block_size)
    return _figures(scenario, records, account, talk, (50, 90, 95, 99), "simulate"), records


def _simulated(
    scenario: Scenario, workload: Workload, costs: Sequence[CostModel], tell: Callable[[float], None] | None = None
) -> Records:
    from sim.cluster import simulate_pools

    return simulate_pools(
        pools.simulated(scenario, workload, costs),
        workload,
        router=scenario.routing,
        horizon_ns=_horizon_ns(scenario),
        seed=scenario.seed,
        escalation=answers.escalation_of(scenario, workload),
        front=front.of_scenario(scenario, workload),
        progress=tell,
    )


def execute(
    scenario: Scenario | str | Path,
    *,
    device: str = "cpu",
    clock: Clock = "device",
    workload: Workload | None = None,
    engine: Engine | Sequence[Engine] | None = None,
    cost: Costs | None = None,
    percentiles: tuple[float, ...] = (50, 90, 95, 99),
    progress: Progress | None = None,
) -> Run:
    """Runs a scenario, or the one of that file or shipped name, on a device: every step is really computed.

    clock: `device` (measured step times advance a simulated clock) or `wall` (real time; arrivals wait).
    engine: one that was built before, for the same model and KV memory; of several pools, one each. cost: explains busy time in the
        report.

    Raises:
        InputError: a device or clock that there is not, or the backend is not installed.
    """
    scenario = loaded(scenario)
    workload = scenarios.generate(scenario) if workload is None else workload
    engines = backends(scenario, device, clock, workload) if engine is None else _listed(engine)
    tokens = int(np.minimum(workload.output_tokens, workload.max_tokens).sum())
    told = Told(progress, tokens)
    views = scenario.of_pools()
    replicas = [one for built, view in zip(engines, views, strict=True) for one in _replicas(built, view.replicas)]
    counted = [Counted(executor, told) for executor in replicas]
    horizon = _horizon_ns(scenario)
    if clock == "device":
        from sim.cluster import run_pools_on_executors

        records = run_pools_on_executors(
            pools.executed(scenario),
            workload,
            counted,
            router=scenario.routing,
            horizon_ns=horizon,
            seed=scenario.seed,
            escalation=answers.escalation_of(scenario, workload),
            front=front.of_scenario(scenario, workload),
        )
    else:
        from gpu_backend.live import run_wall

        if len(counted) > 1:
            raise InputError("--clock wall runs one replica on one device; use --clock device for several")
        records = run_wall(
            views[0].engine_config(),
            workload,
            counted[0],
            horizon_ns=horizon,
            front=front.of_scenario(scenario, workload),
        )
    run = describe(
        scenario, workload, records, way="execute", clock=clock, cost=cost, device=device, percentiles=percentiles
    )
    run.info["backend"] = engines[0].info()
    for about, built in zip(run.info.get("pools", ()), engines, strict=False):
        about["backend"] = built.info()
    return run


def loaded(scenario: Scenario | str | Path) -> Scenario:
    """The scenario itself, or the one of that file or shipped name.

    Raises:
        InputError: there is none, or it is wrong.
    """
    return scenario if isinstance(scenario, Scenario) else scenarios.load(scenario)


def backends(
    scenario: Scenario, device: str = "cpu", clock: Clock = "device", workload: Workload | None = None
) -> list[Engine]:
    """The real engines that execute a scenario, one a pool: see `backend`."""
    found = []
    for view, name in zip(scenario.of_pools(), pools.names(scenario), strict=True):
        try:
            found.append(backend(view, device, clock, workload))
        except InputError as error:
            raise InputError(f"pool {name}: {error}" if scenario.pools else str(error)) from None
    return found


def backend(
    scenario: Scenario, device: str = "cpu", clock: Clock = "device", workload: Workload | None = None
) -> Engine:
    """The real engine that executes a scenario, or other scenarios of the same model, KV memory and requests.

    workload: the scenario's own, if it was generated before.

    Raises:
        InputError: the device is not supported here, or torch is not installed.
    """
    if clock not in ("device", "wall"):
        raise InputError(f"--clock: found {clock}, allowed: device, wall")
    from gpu_backend import make_engine

    section = scenario.engine
    if section.tensor_parallel_size > 1:
        raise InputError(
            f"engine.tensor_parallel_size: found {section.tensor_parallel_size}, but an execution has one device; tensor "
            "parallelism is simulated only (servetwin run)"
        )
    if device == "cpu":
        for field, known in _ON_CPUS.items():
            if getattr(section, field) not in ("auto", *known):
                raise InputError(
                    f"engine.{field}: found {getattr(section, field)}, but the CPU engine has {', '.join(known)} only; simulate it "
                    f"(servetwin run), or execute it with --device cuda"
                )
    if section.speculation is not None and section.speculation.draft_cost is not None:
        raise InputError(
            "engine.speculation.draft_cost: is for simulations; an execution needs engine.speculation.draft_model"
        )
    options: dict[str, Any] = {}
    if section.speculation is not None:
        profile = profile_of(scenario)
        workload = scenarios.generate(scenario) if workload is None else workload
        options["acceptance"] = speculation.acceptance_of(scenario, workload, profile)
        if section.speculation.method == "draft":
            options["draft"] = section.speculation.draft_model
    return make_engine(
        device,
        scenario.model,
        scenario.engine_config(),
        dtype=section.dtype,
        kv_dtype=section.kv_cache_dtype,
        seed=scenario.seed,
        clock=clock,
        **options,
    )


def replayed(run: Run, workload: Workload) -> ReplayReport:
    """Decides a run again with its own step durations; unless it was in real time, arrivals and routing too."""
    if run.info["clock"] == "wall":
        routing = None
    else:
        routing = Routing(str(run.info["router"]), run.info.get("router_options", {}))
    return replay(
        run.records,
        workload,
        pools.recorded(run.info),
        router=routing,
        seed=run.info["seed"],
        escalation=answers.recorded(run.info, workload),
        front=front.recorded(run.info, workload),
        horizon_ns=run.info.get("horizon_ns"),
    )


def describe(
    scenario: Scenario,
    workload: Workload,
    records: Records,
    *,
    way: str,
    clock: str,
    cost: Costs | None,
    device: str | None = None,
    percentiles: tuple[float, ...] = (50, 90, 95, 99),
) -> Run:
    """Records with their summary and all that a reader needs to judge them. cost: of several pools, one each."""
    costs = None if cost is None else pools.costs_of(scenario, cost)
    several, first = bool(scenario.pools), scenario.of_pools()[0]
    cost = None if costs is None else costs[0]
    config = first.engine_config()
    slo = scenario.slo
    account = economics.bill(scenario, records, costs)
    talk = conversations.described(workload, records, config.block_size)
    figures = _figures(scenario, records, account, talk, percentiles, way)
    capacity = first.engine.kv_capacity(first.model, first.hardware) if way == "simulate" and not several else None
    profile = getattr(cost, "profile", None)
    drafting = None if cost is None else speculation.drafting_of(first, cost)
    why_synchronous = first.engine.why_synchronous(first.hardware) if first.engine.async_scheduling else None
    info: dict[str, Any] = {
        "name": scenario.name,
        "description": scenario.description,
        "way": way,
        "clock": clock,
        "device": device,
        "seed": scenario.seed,
        "horizon_ns": _horizon_ns(scenario),
        "model": scenario.model.name,
        "hardware": scenario.hardware.name if way == "simulate" else None,
        "replicas": scenario.replicas,
        "router": scenario.routing.name,
        "preset": first.engine.preset,
        "engine": asdict(config),
        "kv_capacity": "as executed" if capacity is None else capacity.basis,
        "resolved": [f"async_scheduling: off, since {why_synchronous}"] if why_synchronous else [],
        "slo": {"ttft": slo.ttft, "tpot": slo.tpot, "e2e": slo.e2e},
        "front": front.described(scenario),
        "given_up": given_up.described(scenario, workload, records),
        "objectives": [
            {
                "objective": str(objective),
                "key": objective.key,
                "met": None if figures[objective.key] is None else objective.met_by(figures[objective.key]),
            }
            for objective in scenario.objectives
        ],
        "workload": workload.source,
        "cost": cost.name if cost is not None else None,
        "percentiles": list(percentiles),
        "scenario_hash": scenario.hash()[:16],
        "profile_hash": profile.hash() if profile is not None else None,
        "profile": step_costs.described(cost, first),
        "versions": versions(),
        "binding": binding(records, config, cost, figures["duration"], drafting, link_of(first)),
        "speculation": speculation.described(records, first, cost),
        "conversations": talk,
        "transforms": list(workload.changes),
        "answer_lengths": answer_lengths.described(scenario),
        "quality": quality.of_scenario(first, profile if isinstance(profile, Profile) else None),
        "economics": economics.described(account, scenario),
        "steady_state": steady_state.steady_state(records),
    }
    if scenario.routing.options:
        info["router_options"] = dict(scenario.routing.options)
    if several:
        info |= pools.overview(scenario, records, way, costs, figures)
        answers.count(figures, scenario, workload, records, info["pools"])
        judge = answers.judge_of(scenario)
        info["judge"] = None if judge is None else asdict(judge)
    priced = None if isinstance(account, str) else account
    return Run(records, figures, info, "", scenario, costs if several else cost, workload, priced)


def _figures(
    scenario: Scenario,
    records: Records,
    account: Account | str | None,
    talk: dict[str, Any] | None,
    percentiles: tuple[float, ...],
    way: str,
) -> dict[str, Any]:
    """The summary of a run. talk: of conversations, None without."""
    several, first, slo = bool(scenario.pools), scenario.of_pools()[0], scenario.slo
    asked = sorted({*percentiles, *(o.percentile for o in scenario.objectives if o.percentile is not None)})
    figures = summary(records, asked, slo, None if several else first.engine_config(), account=account)
    figures |= senders.figures(records, slo, asked)
    # What is executed has the blocks that it was given.
    capacity = first.engine.kv_capacity(first.model, first.hardware) if way == "simulate" and not several else None
    held = figures["kv_capacity_tokens"]
    figures["kv_capacity_tokens_low"] = held if capacity is None else capacity.low
    figures["kv_capacity_tokens_high"] = held if capacity is None else capacity.high
    if talk is not None:
        figures["kv_survival_percent"] = conversations.survival(talk)
    return figures


def _horizon_ns(scenario: Scenario) -> int | None:
    return None if scenario.horizon is None else round(scenario.horizon * 1e9)


def _listed(engine: Engine | Sequence[Engine]) -> list[Engine]:
    return list(engine) if isinstance(engine, Sequence) else [engine]


def _replicas(engine: Engine, count: int) -> list[Executor]:
    return [engine, *(engine.replica() for _ in range(count - 1))]
