"""What the dashboard's processes do: functions of (tell, ...), without Streamlit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import scenarios
from dashboard.bounds import bear
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


LONG = 20_000
"""Requests from which on the beginning of a run is shown before the whole."""
BEGINNING = 0.05
"""Part of such a run that is its beginning."""


def simulate(tell: Tell, scenario: Scenario) -> Run:
    """A simulation.

    Raises:
        InputError: of more requests than a page bears.
    """
    asked = scenario.workload
    bear(asked.trace.limit if asked.trace is not None and asked.replays else asked.requests)
    tell("reading requests" if asked.replays else "drawing requests", 0.0)
    workload = scenarios.generate(scenario)
    count = len(workload.arrival_ns)
    bear(count)
    if count > LONG:
        begun = runs.beginning(scenario, int(count * BEGINNING), workload)
        if begun is not None:
            tell.partial(begun)
    return runs.simulate(scenario, workload=workload, progress=tell)


def explain(tell: Tell, run: Run, request: int, metric: str) -> Explained:
    """Why a request of a run took so long, as `servetwin explain` says it.

    Raises:
        InputError: there is no such request, or it was not recorded who was in which step.
    """
    from studies.explaining.explain import Explanation

    tell("dividing steps among requests", 0.0)
    found = Explanation(run)
    return Explained(found.sentence(request, metric), found.table([request]), found.tail_sentence())
