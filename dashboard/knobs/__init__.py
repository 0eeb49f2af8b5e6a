"""The settings of a scenario that a page offers: where they stand in it, what they are called, and what they trade.

To add one: write a `Knob` into the module of its group. Everything else of a scenario can be changed as a line of text.
"""

from __future__ import annotations

from dashboard.knobs import deployment, money, policies, workload
from dashboard.knobs.controls import (
    GROUPS,
    Choice,
    Control,
    Knob,
    Number,
    Scale,
    Switch,
    options,
    values,
)
from scenarios import Scenario

__all__ = ["GROUPS", "Choice", "Control", "Knob", "Number", "Scale", "Switch", "of", "options", "values"]


def of(scenario: Scenario) -> list[Knob]:
    """The knobs that mean something for a scenario, group by group."""
    found = [
        *deployment.knobs(scenario),
        *workload.knobs(scenario),
        *policies.knobs(scenario),
        *money.knobs(scenario),
    ]
    return sorted(found, key=lambda knob: GROUPS.index(knob.group))
