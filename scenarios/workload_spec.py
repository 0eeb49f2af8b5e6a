"""What is sent: the `workload` section of a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from scenarios.answer_lengths import AnswerLengths
from scenarios.arrivals import Arrivals, ClosedLoop, knows_its_number
from scenarios.classes import OWN_LENGTHS, ServiceClass, Tenant, check_senders
from scenarios.difficulty import Difficulty
from scenarios.errors import misplaced
from scenarios.fields import Section
from scenarios.layouts import Conversations
from scenarios.lengths import Fixed, Lengths, MaxTokens
from scenarios.predictors import Predictor
from scenarios.prompts import Prompts, Sessions, SharedPrefix, Unique
from scenarios.trace_options import TraceOptions
from scenarios.transforms import Transform, check_caps, check_transforms
from scenarios.varying_rate import MOST_REQUESTS
from serving.config import EngineConfig

ONLY_APART = (
    "requests",
    "arrivals",
    "input",
    "output",
    "max_tokens",
    "prompts",
    "tenants",
    "classes",
    "difficulty",
    "transforms",
    "trace",
)
"""Fields that the parts of a mixture have, but not the mixture."""


class WorkloadSpec(Section):
    """Requests: generated from arrivals, input, output and prompts, or replayed from a trace.

    Args:
        requests: how many. Staged arrivals, and others with a duration, know it themselves.
        arrivals: when they are sent. prompts: what they share with each other, and which quote earlier answers.
        input: new prompt tokens of a request, before shared prefixes and earlier turns.
        output: answer tokens, the true length, which no policy sees.
        max_tokens: what clients declare: a number, or `as_output` for exactly the answer's length.
        tenants: customers, each with its share, priority, lengths and mix of classes.
        classes: kinds of work, each with what is its own; every conversation is of one of them.
        difficulty: what a router that judges prompts sees, 0 (trivial) to 1.
        mix: workloads by name, each with its own arrivals, merged by time. A part's name is the class of what it sends, unless it
            has classes of its own; tenants and classes of equal names are the same in all parts.
        predictor: who expects how long answers are, for orders that need foresight; over a mix, one for all of it.
        transforms: what the product decides about prompts and answers, one after the other; a replayed trace is transformed too.
        answer_lengths: by how much answers are longer with this model, precision or transform; over a mix, for all of it.
        trace: replayed instead of all of these where it has a path; but for classes (their shares, priorities and limits) and
            difficulty, which are drawn for its requests too.
    """

    later: ClassVar[tuple[str, ...]] = ("classes", "difficulty", "mix", "predictor", "transforms", "answer_lengths")

    requests: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    arrivals: Arrivals | None = None
    input: Lengths | None = None
    output: Lengths | None = None
    max_tokens: MaxTokens = "as_output"
    prompts: Prompts = Unique()
    tenants: Annotated[tuple[Tenant, ...], Field(strict=False)] = ()
    classes: Annotated[tuple[ServiceClass, ...], Field(strict=False)] = ()
    difficulty: Difficulty | None = None
    mix: Annotated[dict[Annotated[str, Field(min_length=1)], WorkloadSpec] | None, Field(min_length=1)] = None
    predictor: Predictor | None = None
    transforms: Annotated[tuple[Transform, ...], Field(strict=False)] = ()
    answer_lengths: AnswerLengths | None = None
    trace: TraceOptions | None = None

    @model_validator(mode="after")
    def _complete(self) -> WorkloadSpec:
        if self.mix is not None:
            self._check_mix(self.mix)
            return self
        if self.replays:
            check_senders((), self.classes)
            return self
        hint = "give it, or a trace (--trace FILE or workload.trace.path)"
        if self.arrivals is None:
            raise misplaced(f"is required and missing; {hint}", "arrivals")
        for name in ("input", "output"):
            if getattr(self, name) is None:
                without = [c.name for c in self.classes if getattr(c, name) is None]
                if without:
                    hint = f"class {without[0]} has none of its own"
                if without or not self.classes:
                    raise misplaced(f"is required and missing; {hint}", name)
        if self.requests is None and not knows_its_number(self.arrivals):
            raise misplaced(
                "is required and missing; only arrivals with a duration, or staged ones, know how many there are",
                "requests",
            )
        for path, prompts in self._prompts():
            if isinstance(self.arrivals, ClosedLoop) and isinstance(prompts, Conversations):
                where = path or ("arrivals",)
                raise misplaced(
                    "closed_loop with sessions is not modelled; sessions wait for their answers already", *where
                )
        check_senders(self.tenants, self.classes)
        check_transforms(self.transforms, [prompts for _, prompts in self._prompts()], self.max_tokens)
        return self

    def _prompts(self) -> Iterator[tuple[tuple[str | int, ...], Prompts]]:
        """Every statement of what prompts are made of, with its place."""
        if not self.classes or any(c.prompts is None for c in self.classes):
            yield (), self.prompts
        for i, c in enumerate(self.classes):
            if c.prompts is not None:
                yield ("classes", i, "prompts"), c.prompts

    def _check_mix(self, parts: Mapping[str, WorkloadSpec]) -> None:
        for name in ONLY_APART:
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise misplaced("found beside a mix; each part of it has its own", name)
        for name, part in parts.items():
            if part.answer_lengths is not None:
                raise misplaced("is for the whole mix; state it beside", "mix", name, "answer_lengths")
            if part.mix is not None:
                raise misplaced("a part of a mix cannot be a mix; name its parts here", "mix", name, "mix")
            if part.predictor is not None:
                raise misplaced(
                    "a mix has one predictor for all of it; name it beside the mix", "mix", name, "predictor"
                )
            if isinstance(part.arrivals, ClosedLoop):
                raise misplaced(
                    "closed_loop inside a mix is not modelled; its clients would wait for each other's answers",
                    "mix",
                    name,
                    "arrivals",
                )
        limits: dict[str, tuple[str, object]] = {}
        for name, part in sorted(parts.items()):
            for i, c in enumerate(part.classes):
                other, slo = limits.setdefault(c.name, (name, c.slo))
                if slo != c.slo:
                    why = f"class {c.name} has another slo in {other}; name it otherwise, or let them agree"
                    raise misplaced(why, "mix", name, "classes", i, "slo")
                if c.name in parts and c.name != name and not parts[c.name].classes:
                    raise misplaced(
                        f"class {c.name} is called as the part {c.name} is", "mix", name, "classes", i, "name"
                    )

    @property
    def replays(self) -> bool:
        return self.trace is not None and self.trace.path is not None


Place = tuple[str | int, ...]
Stated = dict[str, tuple[Any, Place]]
"""What requests of one kind are, by field: the value, and where it is stated."""


_ONE_TOKEN = Fixed(distribution="fixed", tokens=1)


def check_fixed_lengths(
    workload: WorkloadSpec, config: EngineConfig, at: Place = ("workload",), stretched: bool = False
) -> None:
    """Refuses a workload with a kind of requests of which an empty engine could hold none. at: where it stands. stretched: answers
    have other lengths than are stated.

    Raises:
        PydanticCustomError: names the field that holds the length.
    """
    stretched |= workload.answer_lengths is not None
    for name, part in (workload.mix or {}).items():
        check_fixed_lengths(part, config, (*at, "mix", name), stretched)
    check_caps(workload.transforms, config.max_model_len, at)
    if workload.mix is None and not workload.replays:
        for kind in _kinds(workload, at):
            _check_kind(kind | {"output": (_ONE_TOKEN, kind["output"][1])} if stretched else kind, config)


def _kinds(workload: WorkloadSpec, at: Place) -> Iterator[Stated]:
    """Every kind of request: by class, and by tenant where that has lengths of its own."""
    fields = (*OWN_LENGTHS, "prompts")
    everyone: Stated = {field: (getattr(workload, field), (*at, field)) for field in fields}

    def own(sender: ServiceClass | Tenant, place: Place) -> Stated:
        found = {field: getattr(sender, field, None) for field in fields}
        return {field: (value, (*place, field)) for field, value in found.items() if value is not None}

    tenants = [(own(t, (*at, "tenants", i)), t.classes) for i, t in enumerate(workload.tenants)]
    apart = [(lengths, sends) for lengths, sends in tenants if lengths]
    alike = len(apart) < len(tenants) or not tenants
    kinds = [(c.name, everyone | own(c, (*at, "classes", i))) for i, c in enumerate(workload.classes)]
    for name, kind in kinds or [("", everyone)]:
        if alike:
            yield kind
        for lengths, sends in apart:
            if not name or sends is None or name in sends:
                yield kind | lengths


def _check_kind(kind: Stated, config: EngineConfig) -> None:
    new, output, declared, prompts = (kind[field][0] for field in (*OWN_LENGTHS, "prompts"))
    prompt = new.shortest
    answer = output.shortest if declared == "as_output" else declared
    field, turn = "input", ""
    if isinstance(prompts, SharedPrefix):
        prompt += prompts.prefix_tokens.shortest
    if isinstance(prompts, Conversations):
        system = prompts.system
        prompt += system.prefix_tokens.shortest if system is not None else 0
        if isinstance(prompts, Sessions) and all(isinstance(length, Fixed) for length in (prompts.turns, new, output)):
            turns, kept = prompts.turns.shortest, min(output.shortest, answer)
            turn = f"turn {turns}: " if turns > 1 else ""
            prompt += (turns - 1) * (new.shortest + kept)
    reason = config.why_it_can_never_run(prompt, answer)
    if reason is None:
        return
    if config.why_it_can_never_run(prompt, 1) is None:
        field = "output" if declared == "as_output" else "max_tokens"
    raise misplaced(f"no engine with these settings could ever run it: {turn}{reason}", *kind[field][1])
