"""`servetwin explain`: why requests were slow."""

from __future__ import annotations

from typing import Annotated

import typer

from studies.commands.options import Json, Set
from studies.commands.runs import RunArg
from studies.commands.runs import found as found_run
from studies.reports import terminal


def explain(
    run: RunArg,
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
    from studies.explaining.explain import Explanation
    from studies.explaining.without import without as rerun

    found = found_run(run, set_ or [])
    assert found.workload is not None
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
            left = rerun(found, found.workload, without)
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
