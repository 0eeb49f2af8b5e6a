"""Serving profiles: how a measured system was served and by whom it was asked, as a named object that makes scenarios.

A measurement states the model, the device, the lengths and the concurrency; its engine's settings and its client's rules are
the same for all its points, and decide as much as the kernels do. A profile holds those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from scenarios import documents, serving_profiles
from scenarios.engine import Engine
from scenarios.errors import InputError, check_keys, misplaced, one_message, unknown
from scenarios.fields import Duration, Section, format_duration
from scenarios.hardware import HardwareSpec
from scenarios.models import ModelSpec
from scenarios.schema import Scenario
from scenarios.shipped import Shipped

_SHIPPED = Shipped(serving_profiles, "serving profile")

LINEAR = ("concurrency", "input", "output", "plus")
AT = ("input", "output", "concurrency", "tensor_parallel_size")


class Linear(Section):
    """A whole number that follows the point: `{concurrency: 1, input: 1, plus: 1500}` is concurrency + input tokens + 1500,
    rounded."""

    concurrency: float = 0.0
    input: float = 0.0
    output: float = 0.0
    plus: float = 0.0

    def at(self, point: Mapping[str, int]) -> int:
        followed = self.concurrency * point["concurrency"] + self.input * point["input"] + self.output * point["output"]
        return round(followed + self.plus)


class Case(Section):
    """Engine settings of some points: those that have one of the listed values of every name in `when`."""

    when: dict[str, Annotated[tuple[int, ...], Field(strict=False, min_length=1)]]
    engine: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _one_value_is_a_list(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and isinstance(data.get("when"), Mapping):
            when = {name: [v] if isinstance(v, int) else v for name, v in data["when"].items()}
            return {**data, "when": when}
        return data

    @field_validator("when")
    @classmethod
    def _known(cls, when: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        check_keys(when, AT)
        return when

    def applies(self, point: Mapping[str, int]) -> bool:
        return all(point[name] in values for name, values in self.when.items())


class Client(Section):
    """Who asks: a closed loop. All clients send at once, and each sends its next request when its last is answered and it has
    reacted.

    Args:
        lengths: `exact`, or `uniform`: whole numbers from `shortest` x the stated length, rounded down, to that length.
        shortest: share of the stated length.
        rounds: requests of a run are so many times the concurrency. All of them count, the first burst included.
        reaction: seconds from an answer's end to the next request. Less than a step of the engine, it decides by how many steps
            the request comes too late for the next one, and no more.
    """

    lengths: Literal["exact", "uniform"] = "exact"
    shortest: float = Field(default=1.0, gt=0, le=1)
    rounds: int = Field(ge=1)
    reaction: Duration = 0.0

    @model_validator(mode="after")
    def _share_of_what(self) -> Client:
        if (self.lengths == "uniform") != (self.shortest < 1):
            raise misplaced(
                f"found {self.shortest:g} with lengths {self.lengths}; uniform needs a share below 1", "shortest"
            )
        return self

    def pause(self) -> dict[str, Any]:
        """Think time of a scenario's arrivals; nothing where clients react at once."""
        return {"think_time": format_duration(self.reaction)} if self.reaction else {}

    def length(self, tokens: int) -> int | dict[str, Any]:
        """The stated length as a scenario's `input` or `output`."""
        if self.lengths == "exact":
            return tokens
        return {"distribution": "uniform", "min": max(1, math.floor(tokens * self.shortest)), "max": tokens}


class ServingProfile(Section):
    """How one source of measurements served and asked.

    Args:
        engine: fields of a scenario's engine section; a number may follow the point (`Linear`).
        cases: more of them for some points; later ones win.
        client: None where requests come from a recording.
        client_overhead: seconds between the engine's first token and the client's, in each request's TTFT and E2E.
        exclusions: measurements of this source whose own figures are in doubt, by name, and why.
        source: where the settings are from.
    """

    name: str
    description: str
    source: str
    engine: dict[str, Any]
    cases: Annotated[tuple[Case, ...], Field(strict=False)] = ()
    client: Client | None = None
    client_overhead: Duration = 0.0
    exclusions: dict[str, str] = Field(default_factory=dict)

    @field_validator("engine")
    @classmethod
    def _engine_fields(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return _checked(fields)

    @model_validator(mode="after")
    def _cases_too(self) -> ServingProfile:
        for number, case in enumerate(self.cases):
            try:
                _checked({**self.engine, **case.engine})
            except PydanticCustomError as error:
                about = error.context or {}
                raise misplaced(about["text"], "cases", number, "engine", *about["path"]) from None
        return self

    def engine_section(
        self,
        *,
        tensor_parallel_size: int = 1,
        isl: int | None = None,
        osl: int | None = None,
        concurrency: int | None = None,
    ) -> dict[str, Any]:
        """The engine section of a scenario at one point: input and output tokens, clients.

        Raises:
            InputError: a setting follows something that the point does not say.
        """
        given = {
            "input": isl, "output": osl, "concurrency": concurrency, "tensor_parallel_size": tensor_parallel_size,
        }  # fmt: skip
        point = {name: value for name, value in given.items() if value is not None}
        fields = dict(self.engine)
        for case in self.cases:
            missing = [name for name in case.when if name not in point]
            if missing:
                raise InputError(f"serving profile {self.name}: settings follow {missing[0]}, which is not stated")
            if case.applies(point):
                fields |= case.engine
        for name, value in fields.items():
            if _is_linear(name, value):
                rule = Linear.model_validate({key: float(number) for key, number in value.items()})
                missing = [key for key in value if key != "plus" and key not in point]
                if missing:
                    raise InputError(
                        f"serving profile {self.name}: engine.{name} follows {missing[0]}, which is not stated"
                    )
                fields[name] = rule.at({**dict.fromkeys(LINEAR, 0), **point})
        if tensor_parallel_size != 1:
            fields["tensor_parallel_size"] = tensor_parallel_size
        return fields

    def scenario(
        self,
        *,
        model: ModelSpec | str,
        hardware: HardwareSpec | str,
        tensor_parallel_size: int = 1,
        isl: int | None = None,
        osl: int | None = None,
        concurrency: int | None = None,
        workload: Mapping[str, Any] | None = None,
        engine: Mapping[str, Any] | None = None,
        cost: Mapping[str, Any] | None = None,
        seed: int = 0,
        name: str | None = None,
    ) -> Scenario:
        """A scenario of this profile.

        Args:
            isl: stated input tokens of a request. osl: stated output tokens. concurrency: clients.
            workload: instead of the profile's own client, as in a scenario file.
            engine: settings of this one measurement; they win.

        Raises:
            InputError: the point says too little, or cannot be served.
        """
        given: dict[str, int | None] = {"isl": isl, "osl": osl, "concurrency": concurrency}
        if workload is None:
            workload = self._closed_loop(**given)
        section = self.engine_section(tensor_parallel_size=tensor_parallel_size, **given) | dict(engine or {})
        data: dict[str, Any] = {
            "name": name or self.name, "model": model, "hardware": hardware, "engine": section, "workload": workload,
            "seed": seed,
        }  # fmt: skip
        if cost is not None:
            data["cost"] = dict(cost)
        try:
            return Scenario.model_validate(data)
        except ValidationError as error:
            path, problem = one_message(error, data)
            raise InputError(f"serving profile {self.name}: {path}: {problem}") from None

    def _closed_loop(self, isl: int | None, osl: int | None, concurrency: int | None) -> dict[str, Any]:
        if self.client is None:
            raise InputError(f"serving profile {self.name}: its requests come from a recording; give a workload")
        if isl is None or osl is None or concurrency is None:
            raise InputError(f"serving profile {self.name}: its client needs isl, osl and concurrency")
        return {
            "requests": self.client.rounds * concurrency,
            "arrivals": {"process": "closed_loop", "concurrency": concurrency} | self.client.pause(),
            "input": self.client.length(isl),
            "output": self.client.length(osl),
        }


def names() -> tuple[str, ...]:
    """Names of the shipped profiles."""
    return _SHIPPED.names()


def load(name: str | Path) -> ServingProfile:
    """The shipped profile of that name, or that of a YAML file.

    Raises:
        InputError: there is none, or it is wrong: names the file, the path inside it, what was found and what is allowed.
    """
    text, source, _ = _SHIPPED.find(name)
    return loads(text, source=source)


def loads(text: str, *, source: str = "serving profile") -> ServingProfile:
    """The profile of a YAML text; `source` is what messages call it."""
    return documents.validated(ServingProfile, text, source)


def _is_linear(name: str, value: Any) -> bool:
    return isinstance(value, Mapping) and name != "speculation"


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Engine fields as they are, once they make an engine section at some point."""
    check_keys(fields, Engine.model_fields)
    tried = dict(fields)
    for name, value in fields.items():
        if _is_linear(name, value):
            for key, number in value.items():
                if key not in LINEAR:
                    raise misplaced(unknown("field", key, LINEAR), name, str(key))
                if isinstance(number, bool) or not isinstance(number, int | float):
                    raise misplaced(f"found {number!r}, but a number is needed", name, key)
            tried[name] = 1024
    try:
        Engine.model_validate(tried)
    except ValidationError as error:
        path, problem = one_message(error, tried)
        raise misplaced(problem, *(path.split(".") if path else ())) from None
    return dict(fields)
