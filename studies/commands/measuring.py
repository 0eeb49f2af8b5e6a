"""The commands that measure with a real model: step costs, what quantisation costs in quality, how many drafts stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.commands.options import Clock, Device, Json, Set, names_of
from studies.reports import terminal

if TYPE_CHECKING:
    from sim.profile import Profile

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="smollm2, a .gguf file, or a Hugging Face folder with safetensors.")
]


def calibrate(
    model: Annotated[str, typer.Option(metavar="NAME", help="A model of the catalog, or a Hugging Face config.json.")],
    device: Device = "cpu",
    clock: Clock = "device",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The profile's file; default out/profiles/NAME.json.")
    ] = None,
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="A coarse grid: about a third of the time.")] = False,
    repeats: Annotated[int, typer.Option(metavar="N", min=1, help="Measurements of each step shape.")] = 5,
    as_json: Json = False,
) -> None:
    """Measure step costs here: a cost profile."""
    from studies import calibrating
    from studies.reports.files import check_file

    # The engine's settings bound what is measured: --set engine.max_num_seqs=8 and the like.
    scenario = calibrating.scenario_of(model, set_ or [])
    target = out or calibrating.FOLDER / f"{scenario.model.name}-{device}.json"
    check_file(target, "a profile is a file")
    with terminal.progress_bar() as tell:
        profile = calibrating.measure_here(
            model, overrides=set_ or (), device=device, clock=clock, grid="quick" if quick else "standard",  # type: ignore[arg-type]
            repeats=repeats, name=target.stem, progress=tell,
        )  # fmt: skip
    target.parent.mkdir(parents=True, exist_ok=True)
    profile.save(target)
    if as_json:
        terminal.print_json(json.loads(profile.model_dump_json(exclude={"measurements"})) | {"file": str(target)})
        return
    from studies.reports.measurement_tables import profile_table

    terminal.show_tables([profile_table(profile)])
    terminal.say(f"wrote {target}")


def quality(
    model: Model,
    weights: Annotated[
        str, typer.Option(metavar="P,P", help="Precisions of the weights: int8, int4, fp8.")
    ] = "int8,int4",
    kv: Annotated[str, typer.Option(metavar="P,P", help="Precisions of the KV cache: int8, fp8.")] = "int8",
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Held-out text; default: a shipped one of 1,275 words.")
    ] = None,
    window: Annotated[int, typer.Option(metavar="N", min=2, help="Most tokens before one that is predicted.")] = 2048,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Store the figures in this cost profile too.")
    ] = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure what quantisation costs in quality.

    Perplexity, KL divergence and top-1 agreement, against the unquantised model."""
    from studies.aspects import quality as qualities
    from studies.reports.files import check_file

    if out is not None:
        check_file(out, "the figures are a file")
    given = _profile(profile)
    with terminal.progress_bar() as tell:
        found = qualities.measured(
            model, weights=names_of(weights), kv=names_of(kv), text=text, window=window, device=device, profile=given,
            progress=tell,
        )  # fmt: skip
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        found.save(out)
        terminal.say(f"wrote {out}")
    if profile is not None and given is not None:
        qualities.store(found, given).save(profile)
        terminal.say(f"wrote {profile}")
    if as_json:
        terminal.print_json(found.model_dump())
        return
    from studies.reports.measurement_tables import quality_table

    terminal.show_tables([quality_table(found)])


def acceptance(
    model: Model,
    method: Annotated[str, typer.Option(metavar="NAME", help="Who proposes drafts: ngram or draft.")] = "ngram",
    k: Annotated[int, typer.Option("--k", metavar="N", help="Drafts at a time.")] = 4,
    draft: Annotated[str | None, typer.Option(metavar="MODEL", help="The draft model, for --method draft.")] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text to continue; default: a shipped one of 1,275 words.")
    ] = None,
    prompts: Annotated[int, typer.Option(metavar="N", min=2, max=256, help="Pieces of it that are continued.")] = 16,
    answer: Annotated[int, typer.Option(metavar="N", min=2, help="Tokens of each answer.")] = 96,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Store the figures in this cost profile.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure how many drafts of speculative decoding stand.

    A real model continues a text; what stands, by position and by request, is what a simulation draws from."""
    from studies import acceptance as acceptances

    given = _profile(profile)
    with terminal.progress_bar() as tell:
        found = acceptances.measured(
            model, text=text, method=method, k=k, draft=draft, requests=prompts, answer_tokens=answer, profile=given,
            progress=tell,
        )  # fmt: skip
    if profile is not None and given is not None:
        acceptances.store(found, given).save(profile)
        terminal.say(f"wrote {profile}")
    if as_json:
        terminal.print_json(found.model_dump())
        return
    from studies.reports.measurement_tables import acceptance_table

    terminal.show_tables([acceptance_table(found)])


def _profile(path: Path | None) -> Profile | None:
    """The cost profile of a file that is going to be written again."""
    from scenarios import InputError
    from sim.profiles import load_profile

    if path is None:
        return None
    if not path.is_file():
        raise InputError(f"--profile {path}: there is no such file; servetwin calibrate writes one")
    return load_profile(path)
