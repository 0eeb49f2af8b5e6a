"""Transforms of a workload: what a product decides about its prompts and answers, one after the other, and what each saved.

To add one: write a class here and put it into `Transform`; what it does to one prompt belongs to `scenarios.dialogue`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from scenarios.agents import Agents
from scenarios.dialogue import (
    Dialogue,
    break_prefix,
    drop_stale_turns,
    stabilise,
    trim_tool_results,
)
from scenarios.errors import InputError, misplaced
from scenarios.fields import Section, ShortForm, TokenCount
from scenarios.layouts import Conversations
from scenarios.lengths import Fixed
from scenarios.workload import Role, Workload

Count = Annotated[int, Field(ge=0)]


class _OfPrompts(Section):
    """A transform that writes every prompt anew. needs_roles: it must know what the parts of prompts are."""

    needs_roles: ClassVar[bool] = False

    def applied(self, workload: Workload) -> Workload:
        return rewritten(workload, self.rewriter(workload))

    @abstractmethod
    def rewriter(self, workload: Workload) -> Callable[[int, Dialogue], Dialogue]:
        """What becomes of the prompt of request i."""


class CapOutput(Section):
    """Answers end after so many tokens: `max_tokens` is no more than that. Later prompts quote what is left of them."""

    kind: Literal["cap_output"]
    tokens: TokenCount

    def applied(self, workload: Workload) -> Workload:
        return replace(workload, max_tokens=np.minimum(workload.max_tokens, self.tokens))

    def __str__(self) -> str:
        return f"cap_output to {self.tokens:,} tokens"


class TrimToolResults(_OfPrompts):
    """Shorter tool results.

    Args:
        tokens: no result is longer; its first tokens stay, so prompts still begin as those before them.
        keep_last: results before the last so many are cleared to `stub_tokens`; what was cached behind them is lost.
    """

    needs_roles = True
    kind: Literal["trim_tool_results"]
    tokens: TokenCount | None = None
    keep_last: Count | None = None
    stub_tokens: Count = 0

    @model_validator(mode="after")
    def _does_something(self) -> TrimToolResults:
        if self.tokens is None and self.keep_last is None:
            raise misplaced("needs tokens (the longest result), keep_last (results that stay), or both", "tokens")
        if self.stub_tokens and self.keep_last is None:
            raise misplaced(
                "is what is left of results that keep_last clears; give that, or leave this out", "stub_tokens"
            )
        return self

    def rewriter(self, workload: Workload) -> Callable[[int, Dialogue], Dialogue]:
        return lambda _, prompt: trim_tool_results(prompt, self.tokens, self.keep_last, self.stub_tokens)

    def __str__(self) -> str:
        parts = [] if self.tokens is None else [f"to {self.tokens:,} tokens"]
        parts += [] if self.keep_last is None else [f"keeping the last {self.keep_last}"]
        return f"trim_tool_results {', '.join(parts)}"


class DropStaleTurns(_OfPrompts):
    """Prompts without their oldest turns: the last `keep_last` before the current one stay.

    Args:
        above: nothing is dropped until there are more turns than this; then as many as leave `keep_last`, so that the prompts
            between share their beginning. Without it, a turn is dropped with every new one, and only the system prompt is shared.
    """

    needs_roles = True
    kind: Literal["drop_stale_turns"]
    keep_last: Count
    above: Count | None = None

    @model_validator(mode="after")
    def _ordered(self) -> DropStaleTurns:
        if self.above is not None and self.above < self.keep_last:
            raise misplaced(f"found {self.above}, below keep_last {self.keep_last}", "above")
        return self

    def rewriter(self, workload: Workload) -> Callable[[int, Dialogue], Dialogue]:
        return lambda _, prompt: drop_stale_turns(prompt, self.keep_last, self.above)

    def __str__(self) -> str:
        above = "" if self.above is None else f" above {self.above}"
        return f"drop_stale_turns keeping the last {self.keep_last}{above}"


class BreakPrefix(_OfPrompts):
    """A text that changes in the system prompt: the time, a user's name, the tools in another order.

    Args:
        tokens: of it. at: tokens of the system prompt before it. per: whether every request has another one, or every session.
    """

    kind: Literal["break_prefix"]
    tokens: TokenCount = 12
    at: Count = 0
    per: Literal["request", "session"] = "request"

    def rewriter(self, workload: Workload) -> Callable[[int, Dialogue], Dialogue]:
        session = workload.session.tolist()

        def stamped(i: int, prompt: Dialogue) -> Dialogue:
            of = f"s{session[i]}" if self.per == "session" and session[i] >= 0 else str(i)
            return break_prefix(prompt, f"now:{of}", self.tokens, self.at)

        return stamped

    def __str__(self) -> str:
        return f"break_prefix with {self.tokens:,} tokens a {self.per} behind {self.at:,}"


class Stabilise(_OfPrompts):
    """System prompts begin with what all share: what only one conversation has comes behind it, and what only one request has
    at the very end."""

    needs_roles = True
    kind: Literal["stabilise"]

    def rewriter(self, workload: Workload) -> Callable[[int, Dialogue], Dialogue]:
        seen: dict[Hashable, tuple[int, int]] = {}
        reach: dict[Hashable, int] = {}
        session = workload.session.tolist()
        for i, prompt in enumerate(prompts_of(workload)):
            for (key, _), role in zip(*prompt, strict=True):
                if role == Role.SYSTEM:
                    first = seen.setdefault(key, (i, session[i]))
                    if first[0] == i:
                        reach.setdefault(key, 0)
                    elif session[i] < 0 or session[i] != first[1]:
                        reach[key] = 2
                    else:
                        reach[key] = max(reach[key], 1)
        return lambda _, prompt: stabilise(prompt, reach)

    def __str__(self) -> str:
        return "stabilise"


class RaiseConcurrency(Section):
    """More is sent at the same time: so many times the clients of a closed loop, or an open loop's arrivals so many times as fast."""

    kind: Literal["raise_concurrency"]
    factor: float = Field(gt=1, le=1000)

    def applied(self, workload: Workload) -> Workload:
        if workload.concurrency is not None:
            return replace(workload, concurrency=max(1, round(workload.concurrency * self.factor)))
        arrival = workload.arrival_ns
        sooner = np.rint(arrival / self.factor).astype(np.int64)
        return replace(workload, arrival_ns=np.where(arrival < 0, arrival, sooner))

    def __str__(self) -> str:
        return f"raise_concurrency {self.factor:g} times"


def _named(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


Transform = Annotated[
    CapOutput | TrimToolResults | DropStaleTurns | BreakPrefix | Stabilise | RaiseConcurrency,
    Field(discriminator="kind"),
    BeforeValidator(_named),
    ShortForm({"enum": ["stabilise"]}),
]


def cap_of(transforms: Iterable[Transform]) -> int | None:
    """Tokens after which answers end, if any transform says so."""
    return min((t.tokens for t in transforms if isinstance(t, CapOutput)), default=None)


def check_transforms(transforms: Sequence[Transform], prompts: Sequence[Any], max_tokens: int | str) -> None:
    """Refuses transforms that could change nothing. prompts: every kind that a workload has.

    Raises:
        PydanticCustomError: names the field of the workload.
    """
    for i, transform in enumerate(transforms):
        kinds = ", ".join(dict.fromkeys(p.kind for p in prompts))
        if isinstance(transform, CapOutput) and isinstance(max_tokens, int) and transform.tokens >= max_tokens:
            why = f"found {transform.tokens}, but clients declare no more than max_tokens {max_tokens}: it would cap nothing"
            raise misplaced(why, "transforms", i, "tokens")
        if isinstance(transform, DropStaleTurns) and not any(_has_earlier_turns(p) for p in prompts):
            why = f"prompts of kind {kinds} have no earlier turns to drop; give sessions, or agents, several turns"
            raise misplaced(why, "transforms", i)
        if isinstance(transform, TrimToolResults) and not any(_calls_tools(p) for p in prompts):
            why = f"prompts of kind {kinds} hold no tool results; only agents of several steps call tools"
            raise misplaced(why, "transforms", i)
        if isinstance(transform, Stabilise) and not any(isinstance(t, BreakPrefix) for t in transforms[:i]):
            why = "nothing in the system prompts changes between requests; put break_prefix before it, or leave it out"
            raise misplaced(why, "transforms", i)


def check_caps(transforms: Sequence[Transform], window: int, at: tuple[str | int, ...]) -> None:
    """Refuses caps that no answer could reach. window: tokens of prompt and answer. at: where the workload stands.

    Raises:
        PydanticCustomError: names the cap.
    """
    for i, transform in enumerate(transforms):
        if isinstance(transform, CapOutput) and transform.tokens >= window:
            why = f"found {transform.tokens}, but prompt and answer have {window} tokens (max_model_len): it would cap nothing"
            raise misplaced(why, *at, "transforms", i, "tokens")


def _has_earlier_turns(prompts: Any) -> bool:
    return isinstance(prompts, Conversations) and not _is_one(getattr(prompts, "turns", None))


def _calls_tools(prompts: Any) -> bool:
    return isinstance(prompts, Agents) and not _is_one(prompts.steps)


def _is_one(length: Any) -> bool:
    return isinstance(length, Fixed) and length.tokens == 1


def prompts_of(workload: Workload) -> Iterable[Dialogue]:
    """Every prompt with what its segments are; a prompt that is one text of its own is what its user says."""
    offset, role = workload.segment_offset, workload.segment_role
    if offset is None:
        return (Dialogue(((f"p{i}", n),), (Role.USER,)) for i, n in enumerate(workload.prompt_tokens.tolist()))
    roles = [Role.USER] * int(offset[-1]) if role is None else role.tolist()
    bounds = offset.tolist()
    return (Dialogue(workload.prompt(i), tuple(roles[bounds[i] : bounds[i + 1]])) for i in range(len(workload)))


def rewritten(workload: Workload, rewrite: Callable[[int, Dialogue], Dialogue]) -> Workload:
    """The workload with every prompt written anew."""
    prompts = [rewrite(i, prompt) for i, prompt in enumerate(prompts_of(workload))]
    return replace(
        workload,
        prompt_tokens=np.array([prompt.tokens for prompt in prompts], dtype=np.int64),
        segment_offset=np.cumsum([0, *(len(prompt.segments) for prompt in prompts)], dtype=np.int64),
        segment_keys=[key for prompt in prompts for key, _ in prompt.segments],
        segment_tokens=np.array([n for prompt in prompts for _, n in prompt.segments], dtype=np.int64),
        segment_role=np.array([role for prompt in prompts for role in prompt.roles], dtype=np.int8),
    )


def transformed(
    workload: Workload, transforms: Sequence[Transform], uncapped: Callable[[], Workload] | None = None
) -> Workload:
    """The workload after all transforms, in order; `changes` says what each changed.

    uncapped: the workload as it were without `cap_output`, if `workload` quotes answers that are capped already.

    Raises:
        InputError: one of them needs to know what the parts of prompts are, and a trace does not say.
    """
    caps = [t for t in transforms if isinstance(t, CapOutput)]
    if caps:
        before = workload if uncapped is None else uncapped()
        cap = min(caps, key=lambda t: t.tokens)
        workload = _changed(str(cap), before, cap.applied(workload))
    for transform in transforms:
        if isinstance(transform, CapOutput):
            continue
        if isinstance(transform, _OfPrompts) and transform.needs_roles and workload.segment_role is None:
            raise InputError(
                f"workload.transforms: {transform.kind} needs to know what the parts of a prompt are, and this trace does not say; "
                "leave it out, or replay a trace of sessions (format: sessions)"
            )
        workload = _changed(str(transform), workload, transform.applied(workload))
    return workload


def _changed(name: str, before: Workload, after: Workload) -> Workload:
    """`after`, with what the transform changed told beside what those before it did."""

    def totals(w: Workload) -> tuple[int, int]:
        return int(w.prompt_tokens.sum()), int(np.minimum(w.output_tokens, w.max_tokens).sum())

    (prompts, answers), (prompts_now, answers_now) = totals(before), totals(after)
    changed = np.minimum(after.output_tokens, after.max_tokens) != np.minimum(before.output_tokens, before.max_tokens)
    changed |= (after.arrival_ns != before.arrival_ns) | (after.concurrency != before.concurrency)
    if after.segment_offset is not None:
        pairs = zip(prompts_of(before), prompts_of(after), strict=True)
        changed |= np.array([old.segments != new.segments for old, new in pairs])
    change = {
        "transform": name,
        "requests_changed": int(changed.sum()),
        "prompt_tokens_saved": prompts - prompts_now,
        "output_tokens_saved": answers - answers_now,
        "prompt_tokens": prompts_now,
        "output_tokens": answers_now,
    }
    return replace(after, changes=(*before.changes, change))
