"""`servetwin compare`: policies side by side, as a table to decide by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.commands.options import Json, Set, Trace, Variants, Workers
from studies.reports import terminal


def compare(
    scenario: Annotated[
        list[str],
        typer.Argument(
            metavar="A.yaml B.yaml ...",
            help="Scenarios, by file or name; or a study or an ablation, of which variants are compared.",
        ),
    ],
    variant: Variants = None,
    trace: Trace = None,
    set_: Set = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Runs of each policy, under the same seeds; default 5, the fewest with intervals."
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Decide by this figure, such as p95_ttft_ms; may be repeated."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The policy that others are held against; default the first.")
    ] = None,
    pareto: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY,KEY",
            help="Tell the Pareto set of these two figures; may be repeated. Default: a latency's tail and cost; tokens per GPU and "
            "per user.",
        ),
    ] = None,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write compare.html, compare.json and compare.parquet into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate policies side by side and decide between them.

    Every policy runs under the same seeds, so that what differs is the policy; each figure has an interval, and what it has more than
    the baseline's."""
    from scenarios import InputError
    from studies import comparison
    from studies.comparison import decision, policies
    from studies.reports import files

    fronts = []
    for text in pareto or ():
        keys = tuple(key.strip() for key in text.split(","))
        if len(keys) != 2 or keys[0] == keys[1]:
            raise InputError(f"--pareto {text}: write two figures, such as p95_ttft_ms,usd_per_1m_output_tokens")
        fronts.append((keys[0], keys[1]))
    gathered = policies.gather(scenario, overrides=set_ or (), trace=trace, variants=policies.variants(variant or ()))
    if out is not None:
        files.check_folder(out)
    with terminal.progress_bar() as tell:
        found = comparison.compare(
            gathered,
            seeds=seeds,
            metrics=metric or (),
            baseline=baseline,
            fronts=fronts,
            processes=workers,
            progress=tell,
        )
    if out is not None:
        terminal.say(f"wrote {comparison.write(found, out)}")
    if as_json:
        terminal.print_json(found.to_dict())
        return
    console = terminal.stdout()
    terminal.show_tables(decision.shown(found, console.width), decision.sentences(found), console)
