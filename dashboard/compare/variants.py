"""Variants of the present scenario: a name and changes each, as they stand in a link, in a row of the page and on a command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard import knobs
from dashboard.command import words as words_of
from dashboard.settings import Settings, as_text
from scenarios import InputError, Override, Scenario, documents
from serving.batching import BATCHINGS
from serving.routing import ROUTERS
from studies.comparison.policies import apart

MOST = 6
LONG = 28
"""Characters of a name that is made of changes."""
_CLI = re.compile(r"[^=]+=\s*[A-Za-z_][\w.\[\]]*\s*=")


@dataclass(frozen=True)
class Variant:
    """changes: overrides between commas, as of `--variant`; none: the scenario as it is set."""

    name: str
    changes: str = ""

    def text(self) -> str:
        """As in a link: `NAME: path=value, path=value`."""
        return f"{self.name}: {self.changes}" if self.changes else self.name

    def overrides(self) -> list[Override]:
        """The changes in order.

        Raises:
            InputError: one is no path and value, or no YAML.
        """
        texts = apart(self.changes) if self.changes.strip() else ()
        return [Override.parse(text, f"{self.name}: {text}") for text in texts]


def read(text: str) -> Variant:
    """A variant of a link; also as it is written behind `--variant`, `NAME=path=value,path=value`, or without a name."""
    text = text.strip()
    colon, equals = (text.find(mark) if mark in text else len(text) for mark in (": ", "="))
    if colon < equals:
        return Variant(text[:colon].strip(), text[colon + 2 :].strip())
    if equals == len(text):
        return Variant(text.removesuffix(":").strip())
    if _CLI.match(text):
        return Variant(text[:equals].strip(), text[equals + 1 :].strip())
    return Variant("", text)


@dataclass
class Checked:
    """policies: what can be compared, by name, the baseline first. variants: those behind them. told: a sentence on everything else."""

    policies: dict[str, Scenario] = field(default_factory=dict)
    variants: list[Variant] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def checked(settings: Settings, variants: Sequence[Variant]) -> Checked:
    """The scenarios of variants, as far as there are such."""
    found = Checked()
    hashes: dict[str, str] = {}
    if len(variants) > MOST:
        left = ", ".join(variant.name or variant.changes for variant in variants[MOST:])
        found.told.append(f"At most {MOST} variants stand side by side; left out: {left}.")
    for variant in variants[:MOST]:
        try:
            named = variant if variant.name else Variant(named_after(variant), variant.changes)
            scenario = settings.scenario(named.overrides())
        except InputError as error:
            found.told.append(f"Left out: {error}")
            continue
        if named is not variant:
            found.told.append(f"A variant without a name is called {named.name} here.")
        if named.name in found.policies:
            found.told.append(f"Two variants are called {named.name}; the second is left out. Give it another name.")
            continue
        digest = scenario.hash()
        if digest in hashes:
            first = hashes[digest]
            what = "the baseline" if first == next(iter(found.policies)) else "an earlier one"
            found.told.append(f"{named.name} is the same as {first}, {what}, so there is nothing to compare: left out.")
            continue
        hashes[digest] = named.name
        found.policies[named.name] = scenario
        found.variants.append(named)
    return found


def named_after(variant: Variant) -> str:
    """A name for changes: `max_num_seqs 64`.

    Raises:
        InputError: they cannot be read.
    """
    parts = [(o.path.rpartition(".")[2], as_text(o.value)) for o in variant.overrides()]
    if not parts:
        return "as set"
    said = " + ".join(f"{name} {value}" for name, value in parts)
    for mark in ("=", ": ", "{", "}"):
        said = said.replace(mark, " ")
    said = " ".join(said.split())
    if len(said) <= LONG:
        return said
    return f"{len(parts)} changes" if len(parts) > 1 else f"{said[: LONG - 1].rstrip()}…"


def is_name(name: str) -> bool:
    """Whether a variant can be called that: a link could not be read otherwise."""
    return bool(name.strip()) and "=" not in name and ": " not in name and not name.endswith(":")


def unused(name: str, variants: Sequence[Variant]) -> str:
    """The name, with a number where it is taken."""
    taken, unique, k = {variant.name for variant in variants}, name, 2
    while unique in taken:
        unique, k = f"{name} ({k})", k + 1
    return unique


def natural(settings: Settings) -> list[Variant]:
    """What somebody wants to compare who has not said so: the scenario as it is against what is changed in it."""
    base = as_it_is(settings) if settings.changes else None
    if base is None:
        return [Variant("as set" if settings.changes else _plain(settings))]
    return [base, Variant(unused(_short(settings), [base]))]


def moved(settings: Settings) -> list[Variant]:
    """The same comparison once the changes are a variant's, and no longer set."""
    found = changes_of(settings)
    base = Variant(_plain(settings))
    return [base, Variant(unused(_short(settings), [base]), found.changes)]


def _short(settings: Settings) -> str:
    """What is set, in a name."""
    return named_after(changes_of(settings)) if len(settings.changes) == 1 else "changed"


def changes_of(settings: Settings) -> Variant:
    """What is set otherwise, as changes of a variant."""
    return Variant("", ", ".join(o.source for o in settings.overrides()))


def as_it_is(settings: Settings) -> Variant | None:
    """The scenario as it is, as a variant of what is set: with every change taken back; None where that cannot be written so."""
    base = Settings(settings.base, {}, settings.trace)
    try:
        plain = base.scenario()
        places = (documents.mapping(*settings.text()), plain.model_dump(mode="json"))
        found = Variant(_plain(settings), ", ".join(_as_in(o, places) for o in settings.overrides()))
        return found if settings.scenario(found.overrides()).hash() == plain.hash() else None
    except InputError:
        return None


def _as_in(changed: Override, places: Sequence[Mapping[str, Any]]) -> str:
    """What stands at the path of a change in the first place that has it."""
    for place in places:
        node: Any = place
        path = ""
        for part in changed.location:
            if isinstance(node, Mapping) and part in node:
                node, path = node[part], f"{path}.{part}" if path else str(part)
            elif isinstance(node, list) and isinstance(part, int) and part < len(node):
                node, path = node[part], f"{path}[{part}]"
            else:
                break
            if node is None:
                return f"{path}=null"
        else:
            return f"{path}={as_text(node)}"
    return f"{changed.path}=null"


def _plain(settings: Settings) -> str:
    name = settings.named()
    return name if is_name(name) else "as it is"


def ready(scenario: Scenario) -> dict[str, list[Variant]]:
    """Sets of variants that many ask for, by what they are called; those that mean something for a scenario."""
    known = {knob.path for knob in knobs.of(scenario)}
    several = "" if scenario.replicas > 1 else "replicas=4, "
    sets = {
        "Engines": ("engine.preset", {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "trtllm"}),
        "Precision": ("engine.dtype", {"bf16": "auto", "fp8": "fp8", "int4": "int4"}),
        "Replicas": ("replicas", {"1 replica": "1", "2 replicas": "2", "4 replicas": "4"}),
        "Batching": ("engine.batching", {_words(name): name for name in BATCHINGS}),
        "Routers": ("router", {_words(name): name for name in ROUTERS}),
    }
    return {
        title: [
            Variant(name, f"{several if path == 'router' else ''}{path}={value}")
            for name, value in list(values.items())[:MOST]
        ]
        for title, (path, values) in sets.items()
        if path in known
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


def command(settings: Settings, variants: Sequence[Variant], seeds: int, metrics: Sequence[str]) -> str:
    """The same on a command line. variants: that can be compared, the baseline first."""
    first, *others = variants
    plain = next((variant for variant in variants if not variant.overrides()), None)
    if plain is None and all(_paths(first) <= _paths(other) for other in others):
        plain = first
    words = words_of(settings, ("compare",))
    if plain is not None:
        words += [word for o in plain.overrides() for word in ("--set", _written(o))]
        words += ["--set", f"name={as_text(plain.name)}"]
    for variant in variants:
        if variant is not plain:
            words += ["--variant", f"{variant.name}={','.join(map(_written, variant.overrides()))}"]
    if plain is not first:
        words += ["--baseline", first.name]
    words += ["--seeds", str(seeds)]
    words += [word for key in metrics for word in ("--metric", key)]
    return shlex.join(words)


def _paths(variant: Variant) -> set[str]:
    return {override.path for override in variant.overrides()}


def _written(override: Override) -> str:
    return f"{override.path}={as_text(override.value)}"
