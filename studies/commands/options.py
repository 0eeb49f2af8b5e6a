"""Arguments and options that several commands of `servetwin` take, each with its help text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

ScenarioArg = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Replay this trace instead of generated requests.")]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the trace's first so many requests.")]
Speedup = Annotated[float | None, typer.Option(metavar="X", help="Replay the trace so many times faster.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Override a field; may be repeated.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Instead of the scenario's seed.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write a result folder with Parquet, JSON and an HTML report.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", min=1, help="Processes side by side; default: all processors."),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", metavar="NAME=PATH=VALUE,...", help="Also the scenario changed in this way; may be repeated."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="Device that computes: cpu or cuda.")]
Clock = Annotated[
    str, typer.Option(metavar="NAME", help="device: measured step times advance a simulated clock; wall: real time.")
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="A measured cost profile, instead of measuring this machine first; with --measured also auto: the shipped one "
        "that fits (else: the roofline).",
    ),
]
# From here on named as in `vllm bench serve`.
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="Requests per second; inf: all at once.")]
Burstiness = Annotated[float | None, typer.Option(metavar="X", help="1 is Poisson, below it bursts.")]
Concurrency = Annotated[int | None, typer.Option(metavar="N", help="Closed loop of so many clients.")]
Prompts = Annotated[int | None, typer.Option(metavar="N", help="Number of requests.")]
InputLen = Annotated[int | None, typer.Option("--random-input-len", metavar="N", help="Prompt tokens.")]
OutputLen = Annotated[int | None, typer.Option("--random-output-len", metavar="N", help="Answer tokens.")]
Goodput = Annotated[
    list[str] | None,
    typer.Option(metavar="LIMITS", help="What requests are promised, in ms: ttft:200 tpot:30 e2el:5000."),
]
Percentiles = Annotated[
    str | None, typer.Option("--metric-percentiles", metavar="P,P", help="Percentiles to report; default 50,90,95,99.")
]
SaveResult = Annotated[bool, typer.Option("--save-result", help="Write a result folder out/NAME, as --out does.")]
SaveDetailed = Annotated[bool, typer.Option("--save-detailed", help="The same, with raw values of each request.")]


def names_of(listed: str) -> list[str]:
    """Names of a comma-separated option, each once; none for an empty text or `none`."""
    names = [name.strip() for name in listed.split(",")]
    return [] if listed.strip() in ("", "none") else list(dict.fromkeys(names))


def spread(arguments: Sequence[str]) -> list[str]:
    """Repeats `--goodput` before each of several values, which vLLM's command line takes in a row."""
    out: list[str] = []
    inside = False
    for argument in arguments:
        if inside and re.fullmatch(r"(ttft|tpot|e2el):[^:]+", argument) and out[-1] != "--goodput":
            out.append("--goodput")
        elif argument.startswith("-"):
            inside = argument == "--goodput"
        out.append(argument)
    return out
