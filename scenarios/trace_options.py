"""How a recorded trace is replayed."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from scenarios.fields import File, Section
from scenarios.history import EXACT, History

Format = Literal["auto", "azure", "burstgpt", "mooncake", "csv", "sessions", "weka"]
TimeUnit = Literal["ns", "us", "ms", "s"]


def _scale(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != "fit" and not (number and 0 < value <= 1000):
        raise ValueError(f"found {value!r}; allowed: a number above 0 and up to 1000, or fit")
    return value


class Columns(Section):
    """Names of a CSV file's columns, where they are not the usual ones."""

    arrival: str | None = None
    prompt_tokens: str | None = None
    output_tokens: str | None = None
    tenant: str | None = None


class TraceOptions(Section):
    """A trace to replay instead of generated requests; without `path` the options wait for `--trace`.

    Args:
        format: azure (CSV), burstgpt (CSV), mooncake (JSONL with block hashes), csv (any columns), sessions (JSONL: agents and
            conversations, in the format of scenarios/trace_sessions.py), weka (JSONL: coding agents, a session a line); auto looks at
            the first line. Sessions that do not say when they start do so as workload.arrivals says.
        time_unit: what the file's times count; mandatory for csv, known for azure, burstgpt and weka, ms for mooncake and s for
            sessions unless said.
        limit: only the first so many requests.
        speedup: 2 replays twice as fast; sessions start twice as fast, and pause as they did.
        length_scale: factor for prompts and answers; `fit` shrinks all by one factor so that the longest request fits the
            engine's window and KV memory.
        block_tokens: tokens that one hash id of a mooncake trace stands for; inferred if not given.
        history: how much of an answer comes back unchanged in later prompts, for format sessions.
    """

    later: ClassVar[tuple[str, ...]] = ("history",)

    path: File | None = None
    format: Format = "auto"
    time_unit: TimeUnit | None = None
    columns: Columns = Columns()
    limit: int | None = Field(default=None, ge=1)
    speedup: float = Field(default=1.0, ge=1e-6, le=1e9)
    length_scale: Annotated[float | Literal["fit"], BeforeValidator(_scale)] = 1.0
    block_tokens: int | None = Field(default=None, ge=1)
    history: History = EXACT
