"""`servetwin decide`: which of two scenarios is better, and how sure that is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from studies.commands.options import Json, Set, Trace, Variants, Workers, names_of
from studies.reports import terminal

_RANGE = re.compile(r"\s*([^=]+?)\s*=\s*([0-9.eE+-]+?)\s*\.\.\s*([0-9.eE+-]+)\s*")


def decide(
    scenario: Annotated[
        list[str],
        typer.Argument(
            metavar="A.yaml [B.yaml]", help="Two scenarios; or one, and its variant; or an ablation or a study."
        ),
    ],
    metric: Annotated[
        str, typer.Option(metavar="NAME", help="What is compared: a figure of the summary.")
    ] = "p95_ttft_ms",
    prefer: Annotated[
        str | None, typer.Option(metavar="lower|higher", help="Which way it is better, where its name does not say.")
    ] = None,
    worlds: Annotated[
        int, typer.Option(metavar="N", help="Worlds: each has values of its own for what is uncertain.")
    ] = 200,
    range_: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="NAME=LOW..HIGH",
            help="An input may be so many times what is assumed of it, such as host=0.7..1.3; may be repeated.",
        ),
    ] = None,
    variant: Variants = None,
    between: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Only these two, of an ablation or study that has more.")
    ] = None,
    set_: Set = None,
    trace: Trace = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the worlds.")] = 0,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write decide.html, decide.json and worlds.parquet into this folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which of two scenarios is better, and how sure that is.

    Both are simulated in many worlds. In each, what the calibration does not know exactly (errors of profiles, KV capacity, accepted
    drafts) has another value, the same for both, and other requests arrive. Also said: which measurement could change the decision."""
    from scenarios.errors import InputError, unknown
    from studies.comparison.policies import gather, variants
    from studies.reports import files
    from studies.uncertainty import page
    from studies.uncertainty.decision import decide as weigh
    from studies.uncertainty.words import sentences

    if prefer not in (None, "lower", "higher"):
        raise InputError(f"--prefer: found {prefer!r}, allowed: lower, higher")
    policies = gather(scenario, files=scenario, overrides=set_ or [], trace=trace, variants=variants(variant or []))
    found = dict(policies.scenarios)
    if between is not None:
        chosen = names_of(between)
        for name in chosen:
            if name not in found:
                raise InputError(f"--between: {unknown('name', name, list(found))}")
        found = {name: found[name] for name in chosen}
    elif len(found) == 3 and len(scenario) == 1 and len(variant or []) == 2:
        found.pop(next(iter(found)))  # of one scenario with two variants, these
    if len(found) != 2:
        raise InputError(
            f"found {len(found)} ({', '.join(found)}), but a decision is between two: give two scenarios, one with --variant "
            "NAME=PATH=VALUE, or --between NAME,NAME"
        )
    if out is not None:
        files.check_folder(out)
    (first, a), (second, b) = found.items()
    with terminal.progress_bar() as tell:
        decision = weigh(
            a, b, metric, worlds=worlds, seed=seed, ranges=_ranges(range_ or []), prefer=prefer,  # type: ignore[arg-type]
            names=(first, second), processes=workers, progress=tell,
        )  # fmt: skip
    if out is not None:
        terminal.say(f"wrote {page.write(decision, out)}")
    if as_json:
        terminal.print_json(decision.to_dict())
        return
    terminal.show_tables(page.all_tables(decision), sentences(decision))


def _ranges(texts: list[str]) -> dict[str, tuple[float, float]]:
    from scenarios.errors import InputError

    found: dict[str, tuple[float, float]] = {}
    for text in texts:
        match = _RANGE.fullmatch(text)
        try:
            low, high = (float(match[2]), float(match[3])) if match else (0.0, 0.0)
        except ValueError:
            match = None
        if match is None:
            raise InputError(f"--range {text}: write a name and two numbers, such as host=0.7..1.3")
        if not 0 < low < high:
            raise InputError(f"--range {text}: found {low:g} to {high:g}, but ends are above 0, the lower one first")
        if match[1] in found:
            raise InputError(f"--range {text}: there is another range of {match[1]}")
        found[match[1]] = (low, high)
    return found
