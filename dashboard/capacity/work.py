"""What the dashboard's processes do for the capacity page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from studies.capacity import cheapest as cheapest_of
from studies.capacity import choices, outline, replicas, search
from studies.capacity.cheapest import Cheapest
from studies.capacity.judging import BySimulation
from studies.capacity.replicas import Fewest
from studies.capacity.search import Capacity
from studies.capacity.space import space
from studies.capacity.told import Told

if TYPE_CHECKING:
    from dashboard.capacity.query import Question
    from dashboard.worker import Tell


@dataclass(frozen=True)
class Chosen:
    """found: of the search so far. space: as a file for `servetwin capacity --cheapest` has it."""

    found: Cheapest
    space: dict[str, Any]


def curve(tell: Tell, asked: Question) -> Capacity:
    """Latency and throughput under some loads."""
    return outline.outline(
        asked.scenario, asked.objectives, asked.load.path, confidence=asked.confidence, requests=asked.requests,
        progress=tell, partial=tell.partial,
    )  # fmt: skip


def highest(tell: Tell, asked: Question) -> Capacity:
    """The highest load, decided, with the curve around it: what `servetwin capacity --out` writes."""
    found = search.highest_load(
        asked.scenario, asked.objectives, asked.load.path, confidence=asked.confidence, requests=asked.requests,
        progress=tell, partial=tell.partial,
    )  # fmt: skip
    search.look_around(found, requests=asked.requests, progress=tell)
    return found


def fewest(tell: Tell, asked: Question) -> Fewest:
    """The fewest replicas that carry the target."""
    told = Told(tell)
    return replicas.fewest(asked.at_target(), asked.size, _judge(asked, told), progress=told, partial=tell.partial)


def cheapest(tell: Tell, asked: Question) -> Chosen:
    """The cheapest of the chosen devices, precisions and sizes that carries the target."""
    scenario = asked.at_target()
    told = Told(tell)
    data = choices.choices(scenario, asked.devices, asked.precisions, asked.parallel, asked.load.path, progress=told)
    found = cheapest_of.cheapest(
        space(data, scenario), _judge(asked, told), progress=told,
        partial=lambda one: tell.partial(Chosen(one, data)),
    )  # fmt: skip
    return Chosen(found, data)


def _judge(asked: Question, told: Told) -> BySimulation:
    return BySimulation(asked.objectives, asked.confidence, asked.requests, tell=told.detail)


def nothing(tell: Tell) -> None:
    """Asked for in the place of what is not wanted any more."""
