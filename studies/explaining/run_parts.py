"""What a run was made of, replica by replica: step costs, settings, and what copies of KV blocks took. Also of one that was read from
its folder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import scenarios
from scenarios.errors import InputError
from scenarios.schema import Scenario
from serving.config import EngineConfig
from sim.cost import CostModel
from sim.host_link import link_of
from studies.aspects import pools
from studies.results import Run


def scenario_of(run: Run) -> Scenario:
    """The scenario of a run.

    Raises:
        InputError: it was read from a folder, and a file that it needs is not there any more.
    """
    if run.scenario is None:
        run.scenario = scenarios.loads(run.scenario_text, source=f"scenario of {run.name}")
    return run.scenario


def costs_of(run: Run) -> list[CostModel] | None:
    """Step costs of each pool. Of an execution only measured ones, since a data sheet says nothing about how its steps divide; None
    where there are none, or the files that they come from have gone."""
    if run.cost is not None:
        return pools.costs_of(scenario_of(run), run.cost)
    try:
        scenario = scenario_of(run)
        if run.info["way"] != "simulate" and scenario.cost.source != "profile":
            return None
        return pools.costs_of(scenario)
    except InputError:
        return None


def replica_costs(run: Run) -> list[CostModel | None]:
    """Step costs of each replica; None where nobody knows them."""
    costs = costs_of(run)
    counts = [pool.replicas for pool in pools.recorded(run.info)]
    each: list[CostModel | None] = [None] * len(counts) if costs is None else list(costs)
    return [cost for cost, n in zip(each, counts, strict=True) for _ in range(n)]


def engines_of(run: Run) -> list[EngineConfig]:
    """Settings of each replica."""
    return [pool.engine for pool in pools.recorded(run.info) for _ in range(pool.replicas)]


def host_copies_of(run: Run) -> NDArray[np.int64] | None:
    """What copies of KV blocks took in each step of a simulation, ns, `(steps,)`; None without any, or where they were really made
    and not timed apart."""
    if run.info["way"] != "simulate":
        return None
    try:
        views = scenario_of(run).of_pools()
    except InputError:
        return None
    links = [link_of(view) for view in views for _ in range(view.replicas)]
    if not any(links):
        return None
    steps, found = run.records.steps, np.zeros(len(run.records.steps["step"]), dtype=np.int64)
    for replica, link in enumerate(links):
        if link is not None:
            mine = steps["replica"] == replica
            found[mine] = link.of_steps({name: column[mine] for name, column in steps.items()})
    return found
