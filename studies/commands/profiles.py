"""The commands about cost profiles: making one from what others measured, and what the shipped ones are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from studies.commands.options import Json
from studies.reports import terminal

import_app = typer.Typer(
    help="Make a cost profile from what others measured.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the measurements.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="A model of the catalog, or a Hugging Face config.json.")]
Out = Annotated[Path, typer.Option(metavar="FILE", help="The profile's file.")]
Degree = Annotated[int, typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel degree.")]


@import_app.command()
def aiconfigurator(
    system: Annotated[str, typer.Option(metavar="NAME", help="The device: H200, h200_sxm, rtx_pro_6000_server, ...")],
    model: Model,
    out: Out,
    engine: Annotated[str, typer.Option(metavar="NAME", help="vllm, sglang or trtllm.")] = "vllm",
    version: Annotated[
        str | None, typer.Option(metavar="X.Y.Z", help="The engine's version that was measured; default: the newest.")
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="NAME", help="Of weights and GEMMs: bfloat16, fp8.")] = "bfloat16",
    kv_dtype: Annotated[str, typer.Option(metavar="NAME", help="Of the KV cache: bfloat16, fp8.")] = "bfloat16",
    tp: Degree = 1,
    expert_skew: Annotated[
        str | None, typer.Option(metavar="NAME", help="How tokens spread over experts: balanced, power_law_1.01, ...")
    ] = None,
    fitted: Annotated[
        bool,
        typer.Option("--fitted/--data-sheet", help="With the host constants fitted to public points, or without any."),
    ] = True,
    tables: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The package's `systems` folder, if not the installed one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """From the operator tables of aiconfigurator-core.

    Needs the extra `profiles`."""
    _import(
        tables, "aiconfigurator", out, out.stem, as_json, system=system, model=model, engine=engine, version=version, dtype=dtype,
        kv_dtype=kv_dtype, tensor_parallel_size=tp, expert_skew=expert_skew, fitted=fitted,
    )  # fmt: skip


@import_app.command()
def llmservingsim(
    folder: Folder,
    model: Model,
    out: Out,
    tp: Degree = 1,
    capture_sizes: Annotated[
        str, typer.Option(metavar="N,N", help="Tokens at which the engine has captured graphs; default: it runs eager.")
    ] = "",
    as_json: Json = False,
) -> None:
    """From a kernel bundle of LLMServingSim.

    dense, attention, per_sequence, moe, skew and meta.yaml."""
    sizes = _numbers(capture_sizes, "--capture-sizes")
    _import(folder, "llmservingsim", out, None, as_json, model=model, tensor_parallel_size=tp, capture_sizes=sizes)


@import_app.command()
def vidur(
    folder: Folder,
    model: Model,
    hardware: Annotated[str, typer.Option(metavar="NAME", help="The device that was measured: A100-80G, H100, ...")],
    out: Out,
    tp: Degree = 1,
    as_json: Json = False,
) -> None:
    """From Vidur's profiling CSV.

    compute/*/mlp.csv, attention.csv and network/*."""
    _import(folder, "vidur", out, None, as_json, model=model, hardware=hardware, tensor_parallel_size=tp)


@import_app.command()
def steps(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV of iteration, prefill and decode counts, elapsed_ms; a vLLM server's log with iteration details; or the "
            "result folder of an executed run.",
        ),
    ],
    model: Annotated[str, typer.Option(metavar="NAME", help="The model's name.")],
    out: Out,
    dtype: Annotated[str, typer.Option(metavar="NAME", help="Of the weights.")] = "bfloat16",
    kv_dtype: Annotated[str, typer.Option(metavar="NAME", help="Of the KV cache.")] = "bfloat16",
    device: Annotated[str, typer.Option(metavar="NAME", help="The device that ran it.")] = "cuda",
    rows: Annotated[str | None, typer.Option(metavar="A:B", help="Only these iterations, B excluded: 6219:.")] = None,
    input_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens of every prompt; default: as the log shows.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The engine's token budget; default: the fullest step.")
    ] = None,
    block_size: Annotated[int, typer.Option(metavar="N", min=1, help="Tokens of a KV block.")] = 16,
    as_json: Json = False,
) -> None:
    """From the step log of a served engine.

    Contexts are reconstructed from its counts; those of our own runs hold them."""
    _import(
        file, "steps", out, out.stem, as_json, model=model, dtype=dtype, kv_dtype=kv_dtype, device=device, rows=rows,
        input_tokens=input_tokens, max_num_batched_tokens=max_num_batched_tokens, block_size=block_size,
    )  # fmt: skip


def profiles(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="All that stands behind this one, or a file.")
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this model.")] = None,
    hardware: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this device.")] = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this precision.")] = None,
    tp: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only of this tensor-parallel degree.")] = None,
    as_json: Json = False,
) -> None:
    """List the shipped cost profiles.

    Domain, error and provenance; with NAME, one of them in full."""
    from scenarios.hardware import hardware as device
    from scenarios.hf_config import model_of
    from studies import profile_list

    if name is not None:
        from sim.profiles import load_profile

        profile = load_profile(name)
        if as_json:
            terminal.print_json(json.loads(profile.model_dump_json()))
            return
        terminal.show_tables(profile_list.tables(profile))
        return
    wanted = {
        "model": model_of(model).name if model else None,
        "hardware": device(hardware).name if hardware else None,
        "dtype": {"bf16": "bfloat16"}.get(dtype or "", dtype),
        "tensor_parallel_size": tp,
    }
    found = profile_list.rows(wanted)
    if as_json:
        terminal.print_json({"profiles": found})
        return
    terminal.show_tables(profile_list.list_tables(found))


def _check(out: Path) -> None:
    """Better told before the work than after it."""
    from studies.reports.files import check_file

    check_file(out, "a profile is a file")
    if out.exists():
        from scenarios.errors import InputError
        from sim.profiles import load_profile

        try:
            load_profile(out)
        except InputError:
            raise InputError(f"--out {out}: exists already and is no profile; choose another name") from None


def _numbers(text: str, option: str) -> tuple[int, ...]:
    from scenarios.errors import InputError

    parts = {part.strip() for part in text.split(",")} - {""}
    if any(not part.isdecimal() or int(part[:10]) == 0 or len(part) > 9 for part in parts):
        raise InputError(f"{option}: found {text[:60]!r}, allowed: whole numbers above 0 with commas between them")
    return tuple(sorted(map(int, parts)))


def _import(source: Path | None, kind: str, out: Path, name: str | None, as_json: bool, **options: Any) -> None:
    """Reads, writes, and shows what came of it; options: those of `studies.profiles.importing`."""
    from studies.profiles.importing import Options, import_profile

    _check(out)
    profile = import_profile(source, kind, name=name, options=Options(**options))
    from studies.profile_list import tables

    out.parent.mkdir(parents=True, exist_ok=True)
    profile.save(out)
    if as_json:
        terminal.print_json(json.loads(profile.model_dump_json()) | {"file": str(out)})
        return
    terminal.show_tables(tables(profile)[:1])
    terminal.say(f"wrote {out}")
