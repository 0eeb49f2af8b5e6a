"""The demonstration: one scenario calibrated, simulated and executed on this machine, shown side by side."""

from __future__ import annotations

from pathlib import Path

from scenarios.schema import Scenario
from studies.progress import Progress
from studies.validation import ValidationReport, validate, write

REPEATS = 2  # the least that shows the noise of the machine


def demo(scenario: Scenario, out: Path, *, progress: Progress | None = None) -> ValidationReport:
    """Validates `scenario` on this machine's CPU and writes the result folder `out` with report.html."""
    found = validate(scenario, repeats=REPEATS, ranking=False, progress=progress)
    write(found, out)
    return found
