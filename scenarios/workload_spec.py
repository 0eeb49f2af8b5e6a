"""What is sent: the `workload` section of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from scenarios.arrivals import MOST_REQUESTS, Arrivals, ClosedLoop, Staged
from scenarios.errors import misplaced
from scenarios.fields import MOST_TOKENS, Section, TokenCount
from scenarios.lengths import Fixed, Lengths
from scenarios.prompts import Prompts, Sessions, SharedPrefix, Unique
from scenarios.trace_options import TraceOptions
from serving.config import EngineConfig


class Tenant(Section):
    """A customer: `weight` is its share of requests, a lower `priority` is served earlier where the policy looks at it."""

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=1e9)
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] = 0


class WorkloadSpec(Section):
    """Requests: generated from arrivals, input, output and prompts, or replayed from a trace.

    Args:
        requests: how many. Staged arrivals know it themselves.
        input: new prompt tokens of a request, before shared prefixes and earlier turns.
        output: answer tokens, the true length, which no policy sees.
        max_tokens: what clients declare: a number, or `as_output` for exactly the answer's length.
        trace: replayed instead of all of these where it has a path.
    """

    requests: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    arrivals: Arrivals | None = None
    input: Lengths | None = None
    output: Lengths | None = None
    max_tokens: TokenCount | Literal["as_output"] = "as_output"
    prompts: Prompts = Unique()
    tenants: Annotated[tuple[Tenant, ...], Field(strict=False)] = ()
    trace: TraceOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _max_tokens(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "max_tokens" in data:
            value = data["max_tokens"]
            if value != "as_output" and (
                isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS
            ):
                raise misplaced(f"found {value!r}; allowed: a whole number above 0, or as_output", "max_tokens")
        return data

    @model_validator(mode="after")
    def _complete(self) -> WorkloadSpec:
        if self.replays:
            return self
        for name in ("arrivals", "input", "output"):
            if getattr(self, name) is None:
                hint = "give it, or a trace (--trace FILE or workload.trace.path)"
                raise misplaced(f"is required and missing; {hint}", name)
        if self.requests is None and not isinstance(self.arrivals, Staged):
            raise misplaced("is required and missing; only staged arrivals know how many there are", "requests")
        if isinstance(self.arrivals, ClosedLoop) and isinstance(self.prompts, Sessions):
            raise misplaced(
                "closed_loop with sessions is not modelled; sessions wait for their answers already", "arrivals"
            )
        names = [tenant.name for tenant in self.tenants]
        if len(set(names)) < len(names):
            raise misplaced(f"names must differ, found {', '.join(names)}", "tenants")
        return self

    @property
    def replays(self) -> bool:
        return self.trace is not None and self.trace.path is not None


def check_fixed_lengths(workload: WorkloadSpec, config: EngineConfig) -> None:
    """Refuses a workload whose every request would be too long for an empty engine.

    Raises:
        PydanticCustomError: names the field that holds the length.
    """
    if workload.replays or workload.input is None or workload.output is None:
        return
    prompt = workload.input.shortest
    answer = workload.output.shortest if workload.max_tokens == "as_output" else workload.max_tokens
    field, turn = "input", ""
    if isinstance(workload.prompts, SharedPrefix):
        prompt += workload.prompts.prefix_tokens.shortest
    if isinstance(workload.prompts, Sessions):
        system = workload.prompts.system
        prompt += system.prefix_tokens.shortest if system is not None else 0
        lengths = (workload.prompts.turns, workload.input, workload.output)
        if all(isinstance(length, Fixed) for length in lengths):
            turns, kept = workload.prompts.turns.shortest, min(workload.output.shortest, answer)
            turn = f"turn {turns}: " if turns > 1 else ""
            prompt += (turns - 1) * (workload.input.shortest + kept)
    reason = config.why_it_can_never_run(prompt, answer)
    if reason is None:
        return
    if config.why_it_can_never_run(prompt, 1) is None:
        field = "output" if workload.max_tokens == "as_output" else "max_tokens"
    raise misplaced(f"no engine with these settings could ever run it: {turn}{reason}", "workload", field)
