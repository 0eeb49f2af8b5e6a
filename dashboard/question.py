"""A question of the library: what it asks and answers, and its points as settings. Nothing here needs Streamlit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from dashboard.settings import QUESTIONED, Settings, as_text
from scenarios.errors import dotted
from studies import questions
from studies.sweeps.axes import Point, short_names
from studies.sweeps.study import Study


@dataclass(frozen=True)
class Told:
    """name: in the library. topic: under which it stands there. short: the answer in a sentence. points: by what they are called, the settings of each."""

    name: str
    topic: str
    question: str
    short: str
    answer: str
    assumes: str
    on_hardware: str
    points: dict[str, Settings]


def listed() -> Iterator[tuple[str, str, str]]:
    """`(topic, name, question)` of all, in the order in which they are told."""
    for topic, names in questions.TOPICS.items():
        for name in names:
            yield topic, name, of(name).question


@cache
def of(name: str) -> Told:
    """The question of that name.

    Raises:
        InputError: there is none.
    """
    study = questions.read(name)
    topic = next((topic for topic, names in questions.TOPICS.items() if name in names), "")
    points = {_called(study, point): _settings(name, point) for point in study.points()}
    return Told(
        name,
        topic,
        study.question,
        questions.first_sentence(study),
        study.answer,
        study.assumes,
        study.on_hardware,
        points,
    )


def asked(settings: Settings) -> Told | None:
    """The question that settings start from, if they do."""
    return of(settings.base.removeprefix(QUESTIONED)) if settings.base.startswith(QUESTIONED) else None


def point_of(told: Told, settings: Settings) -> str | None:
    """The point that settings are, if they are one."""
    return next((called for called, point in told.points.items() if point == settings), None)


def _called(study: Study, point: Point) -> str:
    names = short_names(study.axis_names)
    values = (_value(axis, names[axis], value) for axis, value in point.values.items())
    return ", ".join(values)


def _value(axis: str, name: str, value: object) -> str:
    if axis == "variant":
        return str(value).replace("_", " ")
    return f"{name} {as_text(value)}"


def _settings(name: str, point: Point) -> Settings:
    """The base of a study with what makes the point, what a later override repeats only once."""
    settings = Settings(QUESTIONED + name)
    for override in point.overrides:
        settings = settings.changed(dotted(override.location), as_text(override.value))
    return settings
