"""A scenario: what is served, on what, for whom, and what it is held to. The YAML file's fields are these classes'."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from scenarios.cost import Cost
from scenarios.engine import LATER_FIELDS, Engine
from scenarios.errors import check_name
from scenarios.fields import PositiveDuration, Section
from scenarios.objectives import ObjectiveText, Slo
from scenarios.sheets import Hardware, Model
from scenarios.workload_spec import WorkloadSpec, check_fixed_lengths
from serving.config import EngineConfig
from serving.routing import ROUTERS


class Prices(Section):
    """USD. `gpu_hour` is the price of one device, the sheet's if not given; a replica has `tensor_parallel_size` of them."""

    gpu_hour: float = Field(default=0.0, ge=0)


class Scenario(Section):
    """All of it. Build one with `scenarios.load`, or from Python with `Scenario.model_validate(mapping)`."""

    schema_version: Literal[1] = 1
    name: str = "unnamed"
    description: str = ""
    model: Model
    hardware: Hardware
    engine: Engine = Engine()
    replicas: int = Field(default=1, ge=1)
    router: str = "round_robin"
    workload: WorkloadSpec
    slo: Slo = Slo()
    objectives: Annotated[tuple[ObjectiveText, ...], Field(strict=False)] = ()
    prices: Prices = Prices()
    cost: Cost = Cost()
    seed: int = Field(default=0, ge=0)
    horizon: PositiveDuration | None = None

    @field_validator("router")
    @classmethod
    def _known_router(cls, name: str) -> str:
        return check_name("router", name, ROUTERS)

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        if "gpu_hour" not in self.prices.model_fields_set:
            price = Prices.model_construct(_fields_set=set(), gpu_hour=self.hardware.usd_per_hour)
            # Not marked as set: written out again, the scenario still follows its hardware.
            self.__dict__["prices"] = price
        check_fixed_lengths(self.workload, self.engine_config())
        return self

    @property
    def dtype(self) -> str:
        """Precision of the weights, resolved."""
        return self.engine.weight_dtype

    @property
    def kv_dtype(self) -> str:
        """Precision of the KV cache, resolved."""
        return self.engine.kv_dtype

    def engine_config(self) -> EngineConfig:
        """What the scheduler runs with: explicit fields, then the preset's, KV blocks from memory."""
        return self.engine.resolve(self.model, self.hardware)

    def hash(self) -> str:
        """SHA-256 (hex) of everything that can change a result: contents of files rather than their paths, dimensions
        rather than names; not the scenario's own name and description."""
        content = self.model_dump(mode="json", exclude={"name", "description"}, context={"digest": True})
        for (
            section,
            names,
        ) in LATER.items():  # where they say what was always so, hashes of before they were there stand
            fields = content[section] if section else content
            unset = _DEFAULTS[section].model_dump(mode="json", include=set(names))
            for name in names:
                if fields[name] == unset[name]:
                    del fields[name]
        sheet = content["hardware"]
        if not self.cost.noise:
            del content["cost"]["noise"]
        if self.engine.tensor_parallel_size == 1:
            for name in ("link_bandwidth", "link_latency"):
                sheet.pop(name, None)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_yaml(self) -> str:
        """A file that loads as an equal scenario: the fields that were given, no others."""
        import yaml  # not needed to run a scenario: a machine that only measures may have no PyYAML

        data = self.model_dump(mode="json", exclude_unset=True)
        return yaml.safe_dump({"schema_version": 1} | data, sort_keys=False, allow_unicode=True, width=120)


LATER: Mapping[str, tuple[str, ...]] = {
    "": (),
    "engine": LATER_FIELDS,
    "workload": ("classes", "difficulty", "mix", "transforms"),
    "prices": (),
}
"""By section ("" is the scenario itself): fields that are hashed only where they are not at their defaults, because scenarios of
before they were there keep their hash."""
_DEFAULTS: Mapping[str, Section] = {
    "": Scenario.model_construct(),
    "engine": Engine.model_construct(),
    "workload": WorkloadSpec.model_construct(),
    "prices": Prices.model_construct(),
}
