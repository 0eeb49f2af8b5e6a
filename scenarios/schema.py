"""A scenario: what is served, on what, for whom, and what it is held to. The YAML file's fields are these classes'."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from scenarios import hardware as hardware_catalog
from scenarios import models as model_catalog
from scenarios.engine import LATER_FIELDS, Engine
from scenarios.errors import check_keys, check_name, misplaced
from scenarios.fields import PositiveDuration, Section, digest, wants_digest
from scenarios.hardware import HardwareSpec
from scenarios.hf_config import read_config
from scenarios.models import ModelSpec
from scenarios.objectives import ObjectiveText, Slo
from scenarios.workload_spec import WorkloadSpec, check_fixed_lengths
from serving.config import EngineConfig
from serving.routing import ROUTERS


def _model(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        path = Path((info.context or {}).get("base") or ".") / value
        if value.endswith(".json") or path.is_dir():
            return read_config(path)
        return model_catalog.model(value)
    if isinstance(value, Mapping):
        check_keys(value, [field.name for field in dataclasses.fields(ModelSpec)])
    return value


def _hardware(value: Any) -> Any:
    if isinstance(value, str):
        return hardware_catalog.hardware(value)
    if isinstance(value, Mapping):
        fields = [field.name for field in dataclasses.fields(HardwareSpec)]
        check_keys(value, ["base", *fields])
        if "base" in value:
            if not isinstance(value["base"], str):
                raise misplaced(f"found {value['base']!r}, but the name of a catalog sheet is needed", "base")
            base = hardware_catalog.hardware(value["base"])
            sheet = {name: getattr(base, name) for name in fields} | {"name": f"{base.name} changed"}
            return sheet | {name: given for name, given in value.items() if name != "base"}
    return value


def _name_or_sheet(spec: ModelSpec | HardwareSpec, info: SerializationInfo) -> str | dict[str, Any]:
    """A catalog entry by its name; anything else, and what is hashed, in full."""
    catalog: Mapping[str, object] = model_catalog.CATALOG if isinstance(spec, ModelSpec) else hardware_catalog.CATALOG
    if catalog.get(spec.name) == spec and not wants_digest(info):
        return spec.name
    return {name: value for name, value in dataclasses.asdict(spec).items() if value is not None}


def _named_or_sheet_schema(catalog: Mapping[str, object], what: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"enum": list(catalog)}, {"type": "string"}, {"type": "object"}], "description": what}
    )


class Prices(Section):
    """USD. `gpu_hour` is the price of one device, the sheet's if not given; a replica has `tensor_parallel_size` of them."""

    gpu_hour: float = Field(default=0.0, ge=0)


def _profile_or_digest(profile: str | None, info: SerializationInfo) -> str | None:
    return digest(profile) if profile and wants_digest(info) and Path(profile).is_file() else profile


class Cost(Section):
    """Where step durations come from: `roofline` (sheet and architecture) or a measured `profile` (a path, the name of
    a shipped one, or `auto` for the shipped one that fits). Naming a profile is enough: `cost: {profile: mine.json}`.

    noise: steps take more or less than the profile says, as they did where it was measured: for percentiles, not only means.
    """

    source: Literal["roofline", "profile"] = "roofline"
    profile: Annotated[str | None, PlainSerializer(_profile_or_digest)] = None
    noise: bool = False

    @model_validator(mode="before")
    @classmethod
    def _profile_is_a_source(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("profile") is not None and "source" not in given:
            return {**given, "source": "profile"}
        return given

    @field_validator("profile")
    @classmethod
    def _beside(cls, profile: str | None, info: ValidationInfo) -> str | None:
        base = (info.context or {}).get("base")
        if profile and base is not None and (base / profile).is_file():
            return str(base / profile)
        if profile and profile.endswith(".json") and not Path(profile).is_file():
            raise ValueError(f"there is no file {profile}")
        return profile

    @model_validator(mode="after")
    def _has_profile(self) -> Cost:
        if self.source == "profile" and not self.profile:
            raise misplaced("is required and missing where source is profile", "profile")
        if self.source == "roofline" and self.profile:
            raise misplaced("found roofline beside a profile; leave one of them out", "source")
        if self.source == "roofline" and self.noise:
            raise misplaced("found true, but a roofline has no residuals; name a profile beside it", "noise")
        return self


class Scenario(Section):
    """All of it. Build one with `scenarios.load`, or from Python with `Scenario.model_validate(mapping)`."""

    schema_version: Literal[1] = 1
    name: str = "unnamed"
    description: str = ""
    model: Annotated[
        ModelSpec,
        BeforeValidator(_model),
        PlainSerializer(_name_or_sheet),
        _named_or_sheet_schema(model_catalog.CATALOG, "Name, path of a Hugging Face config.json, or dimensions."),
    ]
    hardware: Annotated[
        HardwareSpec,
        BeforeValidator(_hardware),
        PlainSerializer(_name_or_sheet),
        _named_or_sheet_schema(hardware_catalog.CATALOG, "Name, or a sheet; `base` starts from a named one."),
    ]
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
    "workload": (),
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
