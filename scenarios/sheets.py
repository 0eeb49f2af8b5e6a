"""The model and the hardware of a scenario: named entries of the catalogs, or sheets of their own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, SerializationInfo, ValidationInfo, WithJsonSchema

from scenarios import hardware as hardware_catalog
from scenarios import models as model_catalog
from scenarios.errors import check_keys, misplaced
from scenarios.fields import wants_digest
from scenarios.hardware import HardwareSpec
from scenarios.hf_config import read_config
from scenarios.models import ModelSpec
from scenarios.paths import NamesFile, located


def _model(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        path = located(value, info)
        if os.path.isdir(path):
            return read_config(located(os.path.join(value, "config.json"), info))
        if value.endswith(".json"):
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


Model = Annotated[
    ModelSpec,
    NamesFile(_model),
    PlainSerializer(_name_or_sheet),
    _named_or_sheet_schema(model_catalog.CATALOG, "Name, path of a Hugging Face config.json, or dimensions."),
]
Hardware = Annotated[
    HardwareSpec,
    BeforeValidator(_hardware),
    PlainSerializer(_name_or_sheet),
    _named_or_sheet_schema(hardware_catalog.CATALOG, "Name, or a sheet; `base` starts from a named one."),
]
