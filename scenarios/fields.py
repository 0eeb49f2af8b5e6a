"""The kinds of values that scenario fields hold: durations and rates with their units, files, names, sections."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from scenarios.errors import check_keys
from scenarios.paths import NamesFile, located

_SECONDS = {"ns": "1e-9", "us": "1e-6", "ms": "1e-3", "s": "1", "m": "60", "min": "60", "h": "3600"}
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_DURATION = re.compile(rf"({_NUMBER})\s*(ns|us|µs|ms|s|min|m|h)")
_RATE = re.compile(rf"({_NUMBER})\s*/\s*(s|min|m|h)")


CENTURY = 100 * 365.25 * 86400.0
"""Seconds; 64 bits of nanoseconds hold nearly three of them."""

MOST_TOKENS = 2**40
TokenCount = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class Section(BaseModel):
    """A part of a scenario: no field beyond those declared, no value converted silently, nothing changed later.

    later: fields that are hashed only where they are not at their defaults: scenarios of before they were there keep their hash.
    """

    later: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            check_keys(data, cls.model_fields)
        return data

    @model_serializer(mode="wrap")
    def _as_before_them(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if wants_digest(info):
            for name in self.later:
                if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                    written.pop(name, None)
        return written


class ShortForm:
    """Annotation: the JSON schema allows this short form beside the long one."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, handler(core_schema)]}


def parse_duration(value: object) -> float:
    """Seconds of a text such as `200ms` (ns, us, ms, s, m or min, h). The unit is mandatory."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        if isinstance(value, bool) or not re.fullmatch(_NUMBER, str(value).strip()):
            raise ValueError(f"found {value!r}, but a duration is needed, such as 200ms (ns, us, ms, s, m, h)")
        raise ValueError(f"found {value!r} without a unit; write {value}ms or {value}s (allowed: ns, us, ms, s, m, h)")
    seconds = float(Decimal(found[1]) * Decimal(_SECONDS[found[2].replace("µ", "u")]))
    if not seconds <= CENTURY:
        raise ValueError(f"found {value!r}, but nothing here lasts longer than a hundred years")
    return seconds


def format_duration(seconds: float) -> str:
    """A short text that `parse_duration` reads back as exactly so many seconds, without a decimal point if it can be."""
    exact = []
    for unit, factor in _SECONDS.items():
        number = f"{Decimal(repr(seconds)) / Decimal(factor):f}"
        text = (number.rstrip("0").rstrip(".") if "." in number else number) + unit
        if parse_duration(text) == seconds:
            exact.append(text)
    return min(exact, key=lambda text: ("." in text, len(text)))


def parse_rate(value: object) -> float:
    """Events per second: a number, or a text such as `30/min` (s, m or min, h)."""
    if isinstance(value, str) and (found := _RATE.fullmatch(value.strip())):
        value = float(Decimal(found[1]) / Decimal(_SECONDS[found[2]]))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"found {value!r}, but a rate is needed: requests per second (5), or with a unit (30/min)")
    if not math.isfinite(value):
        raise ValueError(f"found {value!r}, but a finite rate is needed")
    if value < 0:
        raise ValueError(f"found {value!r}, but a rate is never negative")
    return float(value)


def _above_zero(value: float) -> float:
    if not value > 0:
        raise ValueError(f"found {value:g}, but it must be above 0")
    return value


def parse_positive_duration(value: object) -> float:
    return _above_zero(parse_duration(value))


def parse_positive_rate(value: object) -> float:
    rate = parse_rate(value)
    if rate == 0:
        raise ValueError("found 0, but a rate must be above 0; for everything at once write arrivals: all_at_once")
    if not 1e-300 <= rate <= 1e9:
        raise ValueError(f"found {rate:g}, but a rate must be between 1e-300 and 1e9 a second")
    return rate


_duration_text = PlainSerializer(format_duration, return_type=str)
_duration_schema = WithJsonSchema(
    {"type": "string", "pattern": r"^\s*[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?\s*(ns|us|µs|ms|s|m|min|h)\s*$"}
)
_rate_schema = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": r"^\s*[0-9.eE+-]+\s*/\s*(s|m|min|h)\s*$"},
        ]
    }
)

Duration = Annotated[float, BeforeValidator(parse_duration), _duration_text, _duration_schema]
"""Seconds; written with a unit (`200ms`)."""
PositiveDuration = Annotated[float, BeforeValidator(parse_positive_duration), _duration_text, _duration_schema]
Rate = Annotated[float, BeforeValidator(parse_positive_rate), _rate_schema]
"""Events per second, above 0."""
RateOrZero = Annotated[float, BeforeValidator(parse_rate), _rate_schema]


def _existing(value: object, info: ValidationInfo) -> str:
    if not isinstance(value, str):
        raise ValueError(f"found {value!r}, but the path of a file is needed")
    path = located(value, info)
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {path}")
    return str(path)


def digest(path: str) -> str:
    """SHA-256 of a file's bytes."""
    state = os.stat(path)
    return _digest(path, state.st_ino, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest(path: str, *state: int) -> str:
    """state: what changes when the file does. A thousand cells of a sweep replay one trace."""
    with open(path, "rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def wants_digest(info: SerializationInfo) -> bool:
    """Whether a scenario is written out to be hashed: then contents stand in for names."""
    return bool(info.context and info.context.get("digest"))


def _path_or_digest(path: str | None, info: SerializationInfo) -> str | None:
    return digest(path) if path is not None and wants_digest(info) else path


File = Annotated[str, NamesFile(_existing), PlainSerializer(_path_or_digest)]
"""Path of a file that exists, relative to the scenario's own file."""
