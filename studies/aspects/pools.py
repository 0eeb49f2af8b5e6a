"""The pools of a scenario: what each is run with, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from scenarios.errors import InputError
from scenarios.schema import Scenario
from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.metrics import summary
from serving.records import Records
from sim.cost import CostModel
from sim.host_link import link_of
from sim.pool import Pool
from sim.profile import Profile
from studies.aspects import quality, speculation, step_costs
from studies.aspects.binding import binding

Costs = CostModel | Sequence[CostModel]
"""Step costs: of the only pool, or one a pool."""


def costs_of(scenario: Scenario, given: Costs | None = None) -> list[CostModel]:
    """Step costs of each pool: those that are given, or else what the scenario asks for.

    Raises:
        InputError: there is no such profile, or it is of something else.
    """
    views = scenario.of_pools()
    if given is None:
        return [step_costs.cost_of(view) for view in views]
    costs = list(given) if isinstance(given, Sequence) else [given]
    if len(costs) != len(views):
        raise InputError(f"cost: found {len(costs)}, but one is needed for each of {len(views)} pools")
    return costs


def simulated(scenario: Scenario, workload: Workload, costs: Sequence[CostModel]) -> list[Pool]:
    """The pools as the simulator runs them."""
    found = []
    for view, name, cost in zip(scenario.of_pools(), names(scenario), costs, strict=True):
        pool = Pool(
            view.engine_config(),
            cost,
            view.replicas,
            name,
            acceptance=speculation.acceptance_of(view, workload, getattr(cost, "profile", None)),
            drafting=speculation.drafting_of(view, cost),
            noise=step_costs.noise_of(cost) if view.cost.noise else None,
            link=link_of(view),
        )
        found.append(pool)
    return found


def executed(scenario: Scenario) -> list[Pool]:
    """The pools as executors run them."""
    views = zip(scenario.of_pools(), names(scenario), strict=True)
    return [Pool(view.engine_config(), replicas=view.replicas, name=name) for view, name in views]


def names(scenario: Scenario) -> list[str]:
    """Of the pools, by number."""
    return [pool.name for pool in scenario.pools] or ["default"]


def price(view: Scenario) -> float:
    """USD an hour of one replica's devices."""
    return view.prices.gpu_hour * view.engine.tensor_parallel_size


def apart(records: Records, replicas: Sequence[int]) -> list[Records]:
    """What each pool did; replicas: how many it has. Rows of requests keep their place: those of others count as never sent."""
    found, first = [], 0
    for n in replicas:
        home = np.where(records.requests["submitted"] >= 0, records.requests["replica"], -1)  # else no engine saw it
        mine = (home >= first) & (home < first + n)
        steps = (records.steps["replica"] >= first) & (records.steps["replica"] < first + n)
        events = {}
        for name in ("visible", "preempted", "aborted", "drafts", "chunks", "stranded"):
            rows = getattr(records, name)
            events[name] = rows[(rows[:, 0] >= first) & (rows[:, 0] < first + n)]
        part = replace(
            records,
            requests=records.requests | {"status": np.where(mine, records.requests["status"], -1)},
            steps={name: column[steps] for name, column in records.steps.items()},
            info=records.info | {"replicas": n},
            first_tries=None,  # here every try is a request
            **events,
        )
        found.append(part)
        first += n
    return found


def described(
    scenario: Scenario, records: Records, way: str, costs: Sequence[CostModel] | None, duration: float | None
) -> list[dict[str, Any]]:
    """What each pool is and what became of it, JSON-able."""
    views = scenario.of_pools()
    found = []
    parts = apart(records, [view.replicas for view in views])
    for number, (view, pool, part) in enumerate(zip(views, scenario.pools, parts, strict=True)):
        config, cost = view.engine_config(), None if costs is None else costs[number]
        s = summary(part, (50, 90), None, config)
        capacity = view.engine.kv_capacity(view.model, view.hardware) if way == "simulate" else None
        profile = getattr(cost, "profile", None)
        why = view.engine.why_synchronous(view.hardware) if view.engine.async_scheduling else None
        found.append(
            {
                "name": pool.name,
                "model": view.model.name,
                "hardware": view.hardware.name if way == "simulate" else None,
                "replicas": view.replicas,
                "preset": view.engine.preset,
                "engine": asdict(config),
                "usd_per_hour": price(view),
                "kv_capacity_tokens": s["kv_capacity_tokens"],
                "kv_capacity_tokens_low": s["kv_capacity_tokens"] if capacity is None else capacity.low,
                "kv_capacity_tokens_high": s["kv_capacity_tokens"] if capacity is None else capacity.high,
                "kv_capacity_requests": s["kv_capacity_requests"],
                "kv_capacity": "as executed" if capacity is None else capacity.basis,
                "resolved": f"{pool.name}: async_scheduling: off, since {why}" if why else None,
                "requests": s["submitted"],
                "completed": s["completed"],
                "output_tokens": s["total_output_tokens"],
                "preemptions": s["preemptions"],
                "kv_cache_hit_percent": s["kv_cache_hit_percent"],
                "cost": cost.name if cost is not None else None,
                "profile_hash": profile.hash() if profile is not None else None,
                "profile": step_costs.described(cost, view),
                "binding": binding(
                    part,
                    config,
                    cost,
                    duration,
                    None if cost is None else speculation.drafting_of(view, cost),
                    link_of(view),
                ),
                "speculation": speculation.described(part, view, cost),
                "quality": quality.of_scenario(view, profile if isinstance(profile, Profile) else None),
                "curve": None if pool.quality is None else [list(pair) for pair in pool.quality.curve],
                "curve_source": None if pool.quality is None else pool.quality.source,
            }
        )
    return found


def sentence(pools: Sequence[Mapping[str, Any]]) -> str:
    """What binds each pool, in words."""
    return " ".join(f"{pool['name']}: {pool['binding']['sentence']}" for pool in pools)


def overview(
    scenario: Scenario, records: Records, way: str, costs: Sequence[CostModel] | None, figures: Mapping[str, Any]
) -> dict[str, Any]:
    """What is said of a run of several pools where that of a single one says it of its only engine; `pools` holds each apart."""
    found = described(scenario, records, way, costs, figures["duration"])
    hardware = [pool["hardware"] for pool in found if pool["hardware"]]
    busy = [pool["binding"]["busy"] for pool in found]
    replicas = [pool["replicas"] for pool in found]
    return {
        "pools": found,
        "model": " and ".join(dict.fromkeys(pool["model"] for pool in found)),
        "hardware": " and ".join(dict.fromkeys(hardware)) or None,
        "replicas": sum(replicas),
        "kv_capacity": None,
        "resolved": [pool["resolved"] for pool in found if pool["resolved"]],
        "cost": " and ".join(dict.fromkeys(pool["cost"] for pool in found)) if costs is not None else None,
        "profile_hash": None,
        "profile": None,
        "binding": {
            "busy": sum((b or 0.0) * n for b, n in zip(busy, replicas, strict=True)) / sum(replicas),
            "rejected": figures["rejected"],
            "sentence": sentence(found),
        },
        "speculation": None,
        "quality": None,
    }


def recorded(info: Mapping[str, Any]) -> list[Pool]:
    """The pools of a run, from what it says of itself."""
    if "pools" not in info:
        return [Pool(_config(info["engine"]), replicas=info["replicas"])]
    return [Pool(_config(pool["engine"]), replicas=pool["replicas"], name=pool["name"]) for pool in info["pools"]]


def _config(engine: Mapping[str, Any]) -> EngineConfig:
    return EngineConfig(**engine)
