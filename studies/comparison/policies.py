"""What is compared: policies, each a scenario under a name of its own.

They come from scenarios (files or shipped names), from one scenario and variants of it, or from a study or an ablation that has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scenarios
from scenarios import documents
from scenarios.errors import InputError, nearest
from scenarios.load import Override
from scenarios.schema import Scenario
from studies import ablations
from studies.ablations import Ablation
from studies.expectations import Expectation
from studies.sweeps import study as sweeps
from studies.sweeps.axes import VARIANT, Point
from studies.sweeps.study import Study

MOST = 100
"""Policies beyond which a table of them answers nothing."""
_NEXT = re.compile(r",\s*(?=[A-Za-z_][A-Za-z0-9_.\[\]]*\s*=)")

Source = Scenario | Study | str | Path
Variants = Mapping[str, Sequence[str]]
"""Overrides such as `engine.max_num_seqs=64`, by a variant's name."""


@dataclass(frozen=True)
class Policies:
    """Scenarios by name, in order.

    seeds, metrics, question: of the study or ablation that they are from; nothing of others.
    """

    scenarios: Mapping[str, Scenario]
    seeds: tuple[int, ...] = ()
    metrics: tuple[str, ...] = ()
    question: str = ""


def variant(text: str) -> tuple[str, tuple[str, ...]]:
    """Reads `small=engine.max_num_seqs=64,engine.max_num_batched_tokens=512`: a name, and its overrides.

    Raises:
        InputError: there is no name, or no override.
    """
    name, equals, rest = text.partition("=")
    if not equals or not name.strip() or "=" not in rest:
        raise InputError(f"--variant {text}: write a name, a path and a value, such as small=engine.max_num_seqs=64")
    return name.strip(), apart(rest)


def variants(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Several of them by name.

    Raises:
        InputError: one cannot be read, or two have one name.
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, overrides = variant(text)
        if name in found:
            raise InputError(
                f"--variant {text}: there is another {name}; give all of its overrides at once: {name}=A=1,B=2"
            )
        found[name] = overrides
    return found


def apart(text: str) -> tuple[str, ...]:
    """Overrides between commas, `a.b=1, c={d: 2, e: 3}`; those inside of brackets, braces and quotes belong to a value."""
    found, begin, depth, quote = [], 0, 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        elif letter == "," and not depth and _NEXT.match(text, at):
            found.append(text[begin:at].strip())
            begin = at + 1
    return (*found, text[begin:].strip())


def gather(
    found: Source | Sequence[Source] | Mapping[str, Source],
    *,
    files: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    trace: str | Path | None = None,
    variants: Variants | None = None,
) -> Policies:
    """All policies of what is given.

    Args:
        found: a scenario, or a file or shipped name of a scenario, study or ablation; several of them, or several by the names that
            they shall have.
        files: where each scenario came from. Those of one name go by their file's name, or else by a number.
        overrides, trace: of every policy; what distinguishes policies comes after them.
        variants: of every scenario, beside the scenario as it is.

    Raises:
        InputError: something is wrong, or there are no policies.
    """
    if isinstance(found, Scenario | Study | str | Path):
        found = [found]
    items = list(found.values()) if isinstance(found, Mapping) else list(found)
    origins = [str(item) if isinstance(item, str | Path) else "" for item in items] if files is None else list(files)
    parts = [_part(item, overrides, trace, variants) for item in items]
    own = [part for part in parts if part.question]
    if variants and own:
        raise InputError("--variant: a study or an ablation has variants of its own; give a scenario, or leave it out")
    titles = list(found) if isinstance(found, Mapping) else _titles(parts, origins)
    policies: dict[str, Scenario] = {}
    for part, title in zip(parts, titles, strict=True):
        for i, (name, scenario) in enumerate(part.scenarios.items()):
            as_it_is = not part.question and i == 0
            called = title if as_it_is else name if len(parts) == 1 else f"{title}, {name}"
            policies[_unused(called, policies)] = scenario
    if not policies:
        raise InputError("there is nothing to compare; give scenarios, or a study with variants")
    if len(policies) > MOST:
        raise InputError(_too_many(len(policies)))
    metrics = tuple(dict.fromkeys(key for part in own for key in part.metrics))
    return Policies(
        policies, own[0].seeds if own else (), metrics, "\n".join(dict.fromkeys(part.question for part in own))
    )


def _titles(parts: Sequence[Policies], origins: Sequence[str]) -> list[str]:
    """What each part is called: scenarios by their own name if it is the only one; others, and those of one name, by their file."""
    names = [next(iter(part.scenarios)) for part in parts]
    return [
        Path(origin).stem if origin and (part.question or names.count(name) > 1) else name
        for part, name, origin in zip(parts, names, origins, strict=True)
    ]


def _too_many(count: int) -> str:
    return f"{count:,} policies, but a comparison shows at most {MOST}; servetwin sweep runs more"


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    unique, k = name, 2
    while unique in taken:
        unique, k = f"{name} ({k})", k + 1
    return unique


def _part(item: Source, overrides: Sequence[str], trace: str | Path | None, variants: Variants | None) -> Policies:
    """Policies of one thing that is given."""
    if isinstance(item, Study):
        return _of_study(item, overrides, trace)
    if isinstance(item, Scenario):
        return _of_scenario(item, overrides, trace, variants)
    kind = _kind(item)
    if kind == "ablation":
        return _of_ablation(ablations.read(item), str(item), overrides, trace)
    if kind == "study":
        return _of_study(sweeps.read(item), overrides, trace)
    return _of_scenario(item, overrides, trace, variants)


def _kind(item: str | Path) -> str:
    """`scenario`, `ablation` or `study`: by what a file holds, or by which of them is shipped under that name.

    Raises:
        InputError: there is no such file, and nothing of that name.
    """
    shipped = {"scenario": scenarios.names(), "ablation": ablations.names(), "study": sweeps.names()}
    if not Path(item).is_file():
        for kind, names in shipped.items():
            if str(item) in names:
                return kind
        if Path(item).suffix or Path(item).is_dir():
            return "scenario"  # and its reader says what is wrong
        close = nearest(str(item), [name for names in shipped.values() for name in names])
        hint = f"did you mean {close!r}?" if close else f"Shipped scenarios: {', '.join(shipped['scenario'])};"
        raise InputError(
            f"{item}: there is no such file, and no scenario, ablation or study of that name is shipped; {hint} "
            "servetwin ablation and servetwin question list others"
        )
    content = documents.mapping(documents.read_text(Path(item)), str(item))
    if "variants" in content:
        return "ablation"
    return "study" if {"axes", "base", "scenario"} & set(content) else "scenario"


def _of_scenario(
    item: Scenario | str | Path, overrides: Sequence[str], trace: str | Path | None, variants: Variants | None
) -> Policies:
    if isinstance(item, Scenario) and not (overrides or trace or variants):
        return Policies({item.name: item})

    def load(given: Sequence[str | Override]) -> Scenario:
        if isinstance(item, Scenario):
            return scenarios.changed(item, given, trace=trace)
        return scenarios.load(item, overrides=given, trace=trace)

    plain = load(overrides)
    found = {plain.name: plain}
    for name, more in (variants or {}).items():
        if name == plain.name:
            raise InputError(f"--variant {name}: is what the scenario itself is called; choose another name")
        varied = [Override.parse(text, f"--variant {name}: {text}") for text in more]
        found[name] = load([*overrides, *varied])
    return Policies(found)


def _of_ablation(item: Ablation, source: str, overrides: Sequence[str], trace: str | Path | None) -> Policies:
    found = item.scenarios(source, overrides=overrides, trace=trace)
    return Policies(found, (), _expected(item.expect), item.question or source)


def _of_study(item: Study, overrides: Sequence[str], trace: str | Path | None) -> Policies:
    more = [] if trace is None else [f"workload.trace.path={Path(trace).absolute()}"]
    varied = item.with_overrides([*overrides, *more])
    points = varied.points()
    if len(points) > MOST:
        raise InputError(f"{item.source}: {_too_many(len(points))}")
    seeds = varied.seed_list()
    found = {_name_of(point) or item.name: varied.scenario_of(point, seeds[0]) for point in points}
    return Policies(found, seeds, item.metrics or _expected(item.expect), item.question or item.name)


def _name_of(point: Point) -> str:
    """`bounded`, or `bounded, rate 10`."""
    said = str(point)
    return said.removeprefix(f"{VARIANT} ") if next(iter(point.values), "") == VARIANT else said


def _expected(expect: Sequence[Expectation]) -> tuple[str, ...]:
    """Figures that something is expected of, each once."""
    return tuple(dict.fromkeys(expected.key for expected in expect))
