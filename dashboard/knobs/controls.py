"""What a knob is: a place in the scenario, its value, and the kind of widget that changes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dashboard.settings import as_text
from scenarios import documents
from scenarios.fields import Section

GROUPS = ("Model", "Hardware", "Workload", "Engine", "Policies", "SLO", "Prices", "Run")


@dataclass(frozen=True)
class Choice:
    """One of several. options: YAML text of each, and what it is called."""

    options: dict[str, str]


@dataclass(frozen=True)
class Switch:
    """On or off."""


@dataclass(frozen=True)
class Number:
    """Typed or stepped; with `optional`, empty means none. duration: in `unit`, s or ms, while the scenario has seconds."""

    least: float
    most: float
    step: float
    whole: bool = False
    optional: bool = False
    unit: str = ""
    duration: bool = False


@dataclass(frozen=True)
class Scale:
    """A slider over these values, and the present one wherever it lies."""

    values: tuple[float, ...]
    unit: str = ""


Control = Choice | Switch | Number | Scale


@dataclass(frozen=True)
class Knob:
    """One setting.

    path: in the scenario. value: what stands there now, in the scenario's units (a text of YAML for a choice). form: of the text that is
    written for a number, where the field holds more than that: `{distribution: exponential, mean: %ss}`.
    """

    path: str
    group: str
    label: str
    help: str
    control: Control
    value: Any
    form: str = "%s"

    def text(self, value: Any) -> str:
        """A value of the widget as YAML for the scenario."""
        if isinstance(self.control, Choice):
            return str(value)
        if value is None:
            return "null"
        if isinstance(self.control, Number) and self.control.duration:
            return f"{value:.10g}{self.control.unit}"
        if isinstance(value, float):
            return self.form % f"{value:.10g}"
        return self.form % as_text(value)

    def shown(self) -> Any:
        """The present value as the widget has it."""
        if isinstance(self.control, Number) and self.value is not None:
            factor = 1e3 if self.control.duration and self.control.unit == "ms" else 1.0
            scaled = float(f"{self.value * factor:.10g}")
            return round(scaled) if self.control.whole else scaled
        return self.value


def options(control: Choice, value: str) -> dict[str, str]:
    """What a choice has on offer, the present value among it."""
    return control.options if value in control.options else {value: "as given"} | control.options


def values(control: Scale, value: float) -> list[float]:
    """What a scale has on offer, the present value among it."""
    return sorted({*control.values, value})


def strategies(registry: Iterable[str], words: Mapping[str, str]) -> Choice:
    """Every strategy that `serving` has on offer; those whose names say too little in words."""
    return Choice({name: words.get(name, name.replace("_", " ")) for name in registry})


def written(value: Any) -> str:
    """A part of a scenario as it was given; `null` where there is none."""
    if value is None:
        return "null"
    if isinstance(value, Section):
        return as_text(value.model_dump(mode="json", exclude_unset=True))
    if isinstance(value, tuple | list):
        return as_text([part.model_dump(mode="json", exclude_unset=True) for part in value])
    return as_text(value)


def given(value: Any, others: Mapping[str, str], called: str = "as in the scenario") -> tuple[Choice, str]:
    """A choice of ready values, the present one among them, and the present one's text."""
    text = written(value)
    same = next((other for other in others if other == text or _parsed(other) == _parsed(text)), None)
    return (Choice(dict(others)), same) if same is not None else (Choice({text: called} | dict(others)), text)


@lru_cache(maxsize=512)
def _parsed(text: str) -> Any:
    return documents.parse(text, "value")
