"""What stands before the replicas of a scenario: for a run, and from what a run says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from scenarios.admission import Admission
from scenarios.client_behaviour import ClientBehaviour
from scenarios.degradation import Degradation
from scenarios.fields import Section
from scenarios.front_end import FrontEnd
from scenarios.schema import Scenario
from scenarios.workload import Workload
from sim.front import NOTHING, Front, Sections, front_of

_SECTIONS: Mapping[str, type[Section]] = {
    "client_behaviour": ClientBehaviour,
    "front_end": FrontEnd,
    "admission": Admission,
    "degradation": Degradation,
}


def of_scenario(scenario: Scenario, workload: Workload) -> Front:
    """Raises InputError where a tenant or class is named that a trace does not have."""
    sections = Sections(**{field.name: getattr(scenario, field.name) for field in fields(Sections)})
    return front_of(sections, workload, scenario.seed)


def described(scenario: Scenario) -> dict[str, Any]:
    """The sections that a scenario has, JSON-able."""
    given = {name: getattr(scenario, name) for name in _SECTIONS}
    return {name: s.model_dump(mode="json", exclude_unset=True) for name, s in given.items() if s is not None}


def recorded(info: Mapping[str, Any], workload: Workload) -> Front:
    """Of a run, from what it says of itself."""
    found = info.get("front")
    if not found:
        return NOTHING
    sections: dict[str, Any] = {name: _SECTIONS[name].model_validate(given) for name, given in found.items()}
    return front_of(Sections(**sections), workload, info["seed"])
