"""`servetwin fidelity`: the page of all validations, written anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.reports import terminal


def fidelity(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR", envvar="SERVETWIN_DATA", help="Folder of public measurements, with `measured` in it."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page to write.")] = Path("docs/fidelity.md"),
    attempts: Annotated[
        Path, typer.Option(metavar="DIR", help="What was tried on the way, a Markdown file a validation.")
    ] = Path("docs/attempts"),
    own: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="validation.json of `servetwin validate demo --out DIR`, to be on the page."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write each validation's record too: studies/validations/shipped, to ship them."
        ),
    ] = None,
) -> None:
    """Run every validation against measurements and write the page.

    Needs the public measurements and the extra `profiles`; takes some minutes, far fewer when it is run again."""
    from studies.fidelity import page

    with terminal.progress_bar() as tell:
        text = page(data, attempts=attempts, own=own, records=records, progress=tell)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    terminal.say(f"wrote {out}")
