"""What the dashboard's processes do: functions of (tell, ...), without Streamlit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies import run as runs
from studies.reports import run_tables  # noqa: F401 - loaded before it is needed
from studies.results import Run

if TYPE_CHECKING:
    from dashboard.worker import Tell
    from scenarios import Scenario


def simulate(tell: Tell, scenario: Scenario) -> Run:
    """A simulation."""
    tell("simulating", 0.0)
    return runs.simulate(scenario)
