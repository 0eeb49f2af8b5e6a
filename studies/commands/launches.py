"""The commands that turn an engine's launch command and start-up log into a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from studies.commands.options import Json
from studies.reports import terminal

if TYPE_CHECKING:
    from scenarios.launch import Launch

Command = Annotated[
    str, typer.Argument(metavar="COMMAND", help="The whole command in quotes, or a file that holds it (a script).")
]
Log = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What the server printed when it started; it wins over the command.")
]
OutFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the scenario here instead of to stdout.")]
Hardware = Annotated[
    str | None, typer.Option(metavar="NAME", help="The device, where the log does not name it: H100, A100-80G, ...")
]
ModelConfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="The model's Hugging Face config.json, where the catalog does not have it."),
]
Version = Annotated[str | None, typer.Option(metavar="X.Y.Z", help="The engine's version, where no log states it.")]


def from_vllm(
    command: Command,
    log: Log = None,
    out: OutFile = None,
    hardware: Hardware = None,
    model_config: ModelConfig = None,
    version: Version = None,
    as_json: Json = False,
) -> None:
    """Turn `vllm serve ...` into a scenario.

    Its flags and, with --log, what the engine resolved; what is not modelled is named."""
    from scenarios.launch import Options
    from scenarios.launch import from_vllm as read

    _check(out)
    _tell(read(_text(command), log=log, options=Options(hardware, model_config, version)), out, as_json)


def from_sglang(
    command: Command,
    log: Log = None,
    out: OutFile = None,
    hardware: Hardware = None,
    model_config: ModelConfig = None,
    version: Version = None,
    as_json: Json = False,
) -> None:
    """Turn an SGLang launch into a scenario.

    The flags of `python -m sglang.launch_server ...` and, with --log, what the engine resolved."""
    from scenarios.launch import Options
    from scenarios.launch import from_sglang as read

    _check(out)
    _tell(read(_text(command), log=log, options=Options(hardware, model_config, version)), out, as_json)


def _text(command: str) -> str:
    """The command itself, or what a file of that name holds."""
    from scenarios.documents import read_text

    one_word = len(command) < 4096 and not any(char.isspace() for char in command.strip())
    return read_text(Path(command)) if one_word and Path(command).is_file() else command


def _check(out: Path | None) -> None:
    """Raises InputError if the scenario cannot be written there; a workload that was put into it is not lost."""
    from scenarios import InputError
    from studies.reports.files import check_file

    if out is None:
        return
    if out.exists():
        raise InputError(f"--out {out}: exists already; choose another name")
    check_file(out, "a scenario is a file")


def _tell(launch: Launch, out: Path | None, as_json: bool) -> None:
    for message in launch.messages():
        terminal.say(message)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(launch.to_yaml(), encoding="utf-8")
        terminal.say(f"wrote {out}; its workload is a placeholder: edit it, or run it with --trace")
    if as_json:
        terminal.print_json(launch.to_dict())
    elif out is None:
        typer.echo(launch.to_yaml(), nl=False)
