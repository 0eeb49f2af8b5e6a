"""What the dashboard's processes do: functions of (tell, ...), without Streamlit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from studies import run as runs
from studies.reports import run_tables  # noqa: F401 - loaded before it is needed
from studies.reports.tables import Table
from studies.results import Run

if TYPE_CHECKING:
    from dashboard.worker import Tell
    from scenarios import Scenario


@dataclass(frozen=True)
class Explained:
    """sentence: what stood in the way of a request. table: where its time went. tail: what the slowest of all waited for."""

    sentence: str
    table: Table
    tail: str


def simulate(tell: Tell, scenario: Scenario) -> Run:
    """A simulation."""
    tell("simulating", 0.0)
    return runs.simulate(scenario)


def explain(tell: Tell, run: Run, request: int, metric: str) -> Explained:
    """Why a request of a run took so long, as `servetwin explain` says it.

    Raises:
        InputError: there is no such request, or it was not recorded who was in which step.
    """
    from studies.explaining.explain import Explanation

    tell("dividing steps among requests", 0.0)
    found = Explanation(run)
    return Explained(found.sentence(request, metric), found.table([request]), found.tail_sentence())
