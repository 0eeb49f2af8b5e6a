"""The run that a command is about: a finished one in its folder, or a scenario that is simulated for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.reports import terminal

if TYPE_CHECKING:
    from studies.results import Run

RunArg = Annotated[
    str, typer.Argument(metavar="RUN", help="The result folder of a run; or a scenario, which is then simulated.")
]


def found(run: str, overrides: Sequence[str] = ()) -> Run:
    """The finished run of a folder, or that of a scenario by file or name.

    Raises:
        InputError: there is none, it is wrong, or values of a finished run would be changed.
    """
    import scenarios
    from scenarios.errors import InputError
    from studies import results
    from studies.run import simulate
    from studies.workload_files import load_workload

    if Path(run).is_dir():
        if overrides:
            raise InputError(f"--set {overrides[0]}: changes a scenario, but {run} is a finished run")
        done = results.load(run)
        done.workload = load_workload(run)
        return done
    scenario = scenarios.load(run, overrides=overrides)
    with terminal.spinner("simulating"):
        return simulate(scenario)
