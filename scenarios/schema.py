"""A scenario: what is served, on what, for whom, and what it is held to. The YAML file's fields are these classes'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from scenarios.admission import Admission
from scenarios.answer_lengths import check_pools
from scenarios.client_behaviour import ClientBehaviour
from scenarios.cost import Cost
from scenarios.degradation import Degradation
from scenarios.engine import Engine, NamedEngine
from scenarios.errors import beneath, misplaced
from scenarios.fields import PositiveDuration, Section
from scenarios.front_checks import check_front
from scenarios.front_end import FrontEnd
from scenarios.hardware import HardwareSpec
from scenarios.objectives import ObjectiveText, Slo
from scenarios.orders import check_order
from scenarios.pools import PoolSpec, check_names, check_router
from scenarios.prices import Prices
from scenarios.routers import Cascade, Router, routing_of
from scenarios.sheets import Hardware, Model
from scenarios.workload_spec import WorkloadSpec, check_fixed_lengths
from serving.config import EngineConfig
from serving.routing import Routing

SCHEMA_VERSION = 1


class Scenario(Section):
    """All of it. Build one with `scenarios.load`, or from Python with `Scenario.model_validate(mapping)`.

    Args:
        model, hardware: names of the catalogs, files, or sheets of your own; of pools, what they do not state.
        replicas: equal engines behind the router. router: which of them takes a request, a name or one with its options.
        pools: instead of replicas, engines of several models, each with its own hardware, settings and price.
        client_behaviour: how long clients wait, and whether they try again. front_end: HTTP and tokenisation before the engines.
        admission: bounds of queues and allowances. degradation: what is given up under load, in order.
        slo: what every request is promised. objectives: what a run as a whole is held to, such as `ttft_p95 <= 2s`.
        seed: of everything that is drawn. horizon: the run is cut there.
    """

    later: ClassVar[tuple[str, ...]] = ("pools", "client_behaviour", "front_end", "admission", "degradation")

    schema_version: Literal[1] = 1
    name: str = "unnamed"
    description: str = ""
    model: Model
    hardware: Hardware
    engine: NamedEngine = Engine()
    replicas: int = Field(default=1, ge=1)
    router: Router = "round_robin"
    pools: Annotated[tuple[PoolSpec, ...], Field(strict=False)] = ()
    workload: WorkloadSpec
    client_behaviour: ClientBehaviour | None = None
    front_end: FrontEnd | None = None
    admission: Admission | None = None
    degradation: Degradation | None = None
    slo: Slo = Slo()
    objectives: Annotated[tuple[ObjectiveText, ...], Field(strict=False)] = ()
    prices: Prices = Prices()
    cost: Cost = Cost()
    seed: int = Field(default=0, ge=0)
    horizon: PositiveDuration | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, data: Any) -> Any:
        """First of all: what a newer version has added would be called unknown fields."""
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise misplaced(
                f"found {version}: the scenario comes from a newer servetwin, and this one reads version {SCHEMA_VERSION}; update "
                f"servetwin, or write schema_version: {SCHEMA_VERSION} and leave out what this one does not know",
                "schema_version",
            )
        return data

    @model_validator(mode="before")
    @classmethod
    def _as_the_first_pool_has_it(cls, data: Any) -> Any:
        pools = data.get("pools") if isinstance(data, Mapping) else None
        if not isinstance(pools, list | tuple) or not pools or not isinstance(pools[0], Mapping):
            return data
        return {name: pools[0][name] for name in ("model", "hardware") if name in pools[0]} | dict(data)

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        if "gpu_hour" not in self.prices.model_fields_set:
            # Not marked as set: written out again, the scenario still follows its hardware.
            self.__dict__["prices"] = self.prices.model_copy(update={"gpu_hour": self.hardware.usd_per_hour})
            self.prices.model_fields_set.discard("gpu_hour")
        if not self.pools:
            check_order(self.engine, self.workload, self.slo)
            check_fixed_lengths(self.workload, self.engine_config())
            with beneath("router"):
                check_router(self.router, ())
            check_front(self)
            return self
        if "replicas" in self.model_fields_set:
            raise misplaced("found beside pools, each of which has replicas of its own; leave it out", "replicas")
        check_names(self.pools)
        check_pools(self)
        with beneath("router"):
            check_router(self.router, self.pools)
        configs = []
        for i, pool in enumerate(self.of_pools()):
            with beneath("pools", i):
                check_order(pool.engine, self.workload, self.slo)
                configs.append(pool.engine_config())
        _check_some_hold(self.workload, configs)
        check_front(self)
        return self

    @property
    def dtype(self) -> str:
        """Precision of the weights, resolved."""
        return self.engine.weight_dtype

    @property
    def kv_dtype(self) -> str:
        """Precision of the KV cache, resolved."""
        return self.engine.kv_dtype

    @property
    def routing(self) -> Routing:
        """The router and its options."""
        return routing_of(self.router, [pool.name for pool in self.pools])

    @property
    def escalations(self) -> int:
        """How often a request may be sent on to another model."""
        return len(self.pools) - 1 if isinstance(self.router, Cascade) and self.router.judge is not None else 0

    @property
    def retries(self) -> int:
        """How often a client may send a request again."""
        return 0 if self.client_behaviour is None else self.client_behaviour.retries

    def of_pools(self) -> list[Scenario]:
        """The scenario as each pool sees it: its own model, hardware, engine, replicas, step costs and price. Without pools it is
        its only one."""
        if not self.pools:
            return [self]
        found = []
        for pool in self.pools:
            hardware = pool.hardware or self.hardware
            own = {
                "model": pool.model or self.model,
                "hardware": hardware,
                "engine": pool.engine or self.engine,
                "replicas": pool.replicas,
                "cost": pool.cost or self.cost,
                "prices": self.prices.model_copy(update={"gpu_hour": self._gpu_hour_of(pool, hardware)}),
            }
            found.append(self.model_copy(update={**own, "pools": (), "router": "round_robin"}))
        return found

    def _gpu_hour_of(self, pool: PoolSpec, hardware: HardwareSpec) -> float:
        if pool.gpu_hour is not None:
            return pool.gpu_hour
        # A price that the scenario states is that of its own hardware.
        return self.prices.gpu_hour if hardware == self.hardware else hardware.usd_per_hour

    def engine_config(self) -> EngineConfig:
        """What the scheduler runs with: explicit fields, then the preset's, KV blocks from memory. With several pools, that of the
        first."""
        if self.pools:
            return self.of_pools()[0].engine_config()
        return self.engine.resolve(self.model, self.hardware)

    def hash(self) -> str:
        """SHA-256 (hex) of everything that can change a result: contents of files rather than their paths, dimensions
        rather than names; not the scenario's own name and description."""
        content = self.model_dump(mode="json", exclude={"name", "description"}, context={"digest": True})
        sheet = content["hardware"]
        if self.engine.tensor_parallel_size == 1:
            for name in ("link_bandwidth", "link_latency"):
                sheet.pop(name, None)
        if not any(part.engine.uses_host_memory for part in self.of_pools()):
            for name in ("host_bandwidth", "host_latency"):
                sheet.pop(name, None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        """A file that loads as an equal scenario: the fields that were given, no others."""
        import yaml  # not needed to run a scenario: a machine that only measures may have no PyYAML

        data = self.model_dump(mode="json", exclude_unset=True)
        return yaml.safe_dump({"schema_version": SCHEMA_VERSION} | data, sort_keys=False, allow_unicode=True, width=120)


def _check_some_hold(workload: WorkloadSpec, configs: Sequence[EngineConfig]) -> None:
    """Refuses a workload of which no pool could hold every kind of request."""
    for i, config in enumerate(configs):
        try:
            check_fixed_lengths(workload, config)
        except PydanticCustomError:
            if i == len(configs) - 1:
                raise
        else:
            return
