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
from scenarios.arrivals import MOST_REQUESTS, Arrivals, ClosedLoop, Staged
from scenarios.engine import LATER_FIELDS, Engine
from scenarios.errors import check_keys, check_name, misplaced
from scenarios.fields import MOST_TOKENS, PositiveDuration, Section, TokenCount, digest, wants_digest
from scenarios.hardware import HardwareSpec
from scenarios.hf_config import read_config
from scenarios.lengths import Fixed, Lengths
from scenarios.models import ModelSpec
from scenarios.objectives import ObjectiveText, Slo
from scenarios.prompts import Prompts, Sessions, SharedPrefix, Unique
from scenarios.trace_options import TraceOptions
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


class Tenant(Section):
    """A customer: `weight` is its share of requests, a lower `priority` is served earlier where the policy looks at it."""

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=1e9)
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0


class WorkloadSpec(Section):
    """Requests: generated from arrivals, input, output and prompts, or replayed from a trace.

    Args:
        requests: how many. Staged arrivals know it themselves.
        input: new prompt tokens of a request, before shared prefixes and earlier turns.
        output: answer tokens, the true length, which no policy sees.
        max_tokens: what clients declare: a number, or `as_output` for exactly the answer's length.
        trace: replayed instead of all of these where it has a path.
    """

    requests: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    arrivals: Arrivals | None = None
    input: Lengths | None = None
    output: Lengths | None = None
    max_tokens: TokenCount | Literal["as_output"] = "as_output"
    prompts: Prompts = Unique()
    tenants: Annotated[tuple[Tenant, ...], Field(strict=False)] = ()
    trace: TraceOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _max_tokens(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "max_tokens" in data:
            value = data["max_tokens"]
            if value != "as_output" and (
                isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS
            ):
                raise misplaced(f"found {value!r}; allowed: a whole number above 0, or as_output", "max_tokens")
        return data

    @model_validator(mode="after")
    def _complete(self) -> WorkloadSpec:
        if self.replays:
            return self
        for name in ("arrivals", "input", "output"):
            if getattr(self, name) is None:
                hint = "give it, or a trace (--trace FILE or workload.trace.path)"
                raise misplaced(f"is required and missing; {hint}", name)
        if self.requests is None and not isinstance(self.arrivals, Staged):
            raise misplaced("is required and missing; only staged arrivals know how many there are", "requests")
        if isinstance(self.arrivals, ClosedLoop) and isinstance(self.prompts, Sessions):
            raise misplaced(
                "closed_loop with sessions is not modelled; sessions wait for their answers already", "arrivals"
            )
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) < len(names):
            raise misplaced(f"names must differ, found {', '.join(names)}", "tenants")
        return self

    @property
    def replays(self) -> bool:
        return self.trace is not None and self.trace.path is not None


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


def check_fixed_lengths(workload: WorkloadSpec, config: EngineConfig) -> None:
    """Refuses a workload whose every request would be too long for an empty engine.

    Raises:
        PydanticCustomError: names the field that holds the length.
    """
    if workload.replays or workload.input is None or workload.output is None:
        return
    prompt = workload.input.shortest
    answer = workload.output.shortest if workload.max_tokens == "as_output" else workload.max_tokens
    field, turn = "input", ""
    if isinstance(workload.prompts, SharedPrefix):
        prompt += workload.prompts.prefix_tokens.shortest
    if isinstance(workload.prompts, Sessions):
        system = workload.prompts.system
        prompt += system.prefix_tokens.shortest if system is not None else 0
        lengths = (workload.prompts.turns, workload.input, workload.output)
        if all(isinstance(length, Fixed) for length in lengths):
            turns, kept = workload.prompts.turns.shortest, min(workload.output.shortest, answer)
            turn = f"turn {turns}: " if turns > 1 else ""
            prompt += (turns - 1) * (workload.input.shortest + kept)
    reason = config.why_it_can_never_run(prompt, answer)
    if reason is None:
        return
    if config.why_it_can_never_run(prompt, 1) is None:
        field = "output" if workload.max_tokens == "as_output" else "max_tokens"
    raise misplaced(f"no engine with these settings could ever run it: {turn}{reason}", "workload", field)
