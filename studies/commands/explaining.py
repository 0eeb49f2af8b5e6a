"""`servetwin explain`: why requests were slow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies import terminal
from studies.commands.options import Json, Set


def explain(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The result folder of a run; or a scenario, which is then simulated.")
    ],
    worst: Annotated[
        str | None,
        typer.Option(metavar="ttft|tpot|e2el|queue", help="The slowest requests by this figure (default ttft)."),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="So many of them.")] = 3,
    request: Annotated[list[int] | None, typer.Option(metavar="ID", help="This request (repeatable).")] = None,
    without: Annotated[
        int | None, typer.Option(metavar="ID", help="What this request did to all others: the run again without it.")
    ] = None,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Say why requests were slow, and who stood in their way."""
    import scenarios
    from scenarios.errors import InputError
    from studies import results
    from studies.explain import Explanation
    from studies.run import simulate
    from studies.without import without as rerun
    from studies.workload_files import load_workload

    if Path(run).is_dir():
        if set_:
            raise InputError(f"--set {set_[0]}: changes a scenario, but {run} is a finished run")
        found, workload = results.load(run), load_workload(run)
    else:
        scenario = scenarios.load(run, overrides=set_ or [])
        with terminal.spinner("simulating"):
            found = simulate(scenario)
        assert found.workload is not None
        workload = found.workload
    explanation = Explanation(found)
    metric = worst or "ttft"
    asked = list(request or ())
    for each in asked:
        explanation.check(each)
    if worst is not None or not (asked or without is not None):
        asked += [each for each in explanation.worst(metric, top) if each not in asked]
    left = None
    if without is not None:
        with terminal.spinner("simulating without it"):
            left = rerun(found, workload, without)
    if as_json:
        terminal.print_json(
            {
                "name": found.name,
                "metric": metric,
                "divided_by": explanation.parts.shared_by,
                "requests": explanation.document(asked, metric),
                "tail": explanation.tail_sentence(),
                "without": None if left is None else left.to_dict(),
            }
        )
        return
    console = terminal.stdout()
    said = [f"- {explanation.sentence(each, metric)}" for each in asked]
    shown = [explanation.table(asked)] if asked else []
    if worst is not None or not (request or without is not None):
        shown.append(explanation.tail_table())
        said.append(explanation.tail_sentence())
    if left is not None:
        said.append(left.sentence)
    terminal.show_tables(shown, said, console)
