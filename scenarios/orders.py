"""What a queue order needs of the scenario that names it."""

from __future__ import annotations

from scenarios.engine import Engine
from scenarios.errors import misplaced
from scenarios.objectives import Slo
from scenarios.workload_spec import WorkloadSpec


def check_order(engine: Engine, workload: WorkloadSpec, slo: Slo) -> None:
    """Refuses an order that has nothing to go by, and would silently be `fcfs`.

    Raises:
        PydanticCustomError: names the engine's field.
    """
    parts = list((workload.mix or {"": workload}).values())
    missing = None
    if engine.policy == "shortest_first" and workload.predictor is None:
        missing = (
            "nobody predicts how long answers are; name a workload.predictor (oracle, class_mean, declared, "
            "{kind: noisy_oracle, cv: 0.5})"
        )
    elif engine.policy == "deadline":
        limits = [slo, *(c.slo for part in parts for c in part.classes if c.slo is not None)]
        if all(limit.ttft is None for limit in limits):
            missing = "nobody is promised a time to first token; give slo.ttft, or the slo.ttft of a class"
    elif engine.policy == "longest_prefix" and not engine.enable_prefix_caching:
        missing = "enable_prefix_caching is false, so nothing is ever found in the cache"
    elif engine.policy == "fair" and not any(part.replays or len(part.tenants) > 1 for part in parts):
        names = {tenant.name for part in parts for tenant in part.tenants}
        if len(names) < 2:
            missing = "there is only one tenant; name workload.tenants"
    if missing is not None:
        raise misplaced(f"found {engine.policy}, but {missing}", "engine", "policy")
