"""Reading scenario files: by path or by a shipped name, with values overridden from the command line."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scenarios import documents, library
from scenarios.errors import InputError, Location, dotted, one_message
from scenarios.paths import place
from scenarios.presets import ALIASES, PRESETS
from scenarios.schema import Scenario
from scenarios.shipped import Found, Shipped
from serving.batching import BATCHINGS
from serving.capacity import CAPACITIES
from serving.policies import ORDERS
from serving.routing import ROUTERS

_SHIPPED = Shipped(library, "scenario")


@dataclass(frozen=True)
class Override:
    """One value of a scenario set from outside its file.

    path: where, such as `engine.max_num_seqs` or `workload.classes[0].slo.ttft`. value: what YAML reads. source: what messages
    call it.
    """

    path: str
    value: Any
    source: str

    @classmethod
    def parse(cls, text: str, source: str | None = None) -> Override:
        """Reads `engine.max_num_seqs=64`.

        Raises:
            InputError: no path and value, or a value that is no YAML.
        """
        source = f"--set {text}" if source is None else source
        path, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"{source}: write a path and a value, such as engine.max_num_seqs=64")
        return cls(path.strip(), documents.parse(value, source), source)

    @property
    def location(self) -> Location:
        """The path by its parts: names, and numbers of items."""
        parts = tuple(int(p) if p.isdecimal() else p for p in self.path.replace("[", ".").replace("]", "").split("."))
        if "" in parts or isinstance(parts[0], int):
            raise InputError(f"{self.source}: write a path and a value, such as engine.max_num_seqs=64")
        return parts


def names() -> tuple[str, ...]:
    """Names of the shipped scenarios."""
    return _SHIPPED.names()


def template(name: str, file: Path | None = None) -> str:
    """The commented text of a shipped scenario, to start one's own from.

    file: where the copy will stand; the name and the commands in it then are the copy's.

    Raises:
        InputError: no such name.
    """
    text = _SHIPPED.text(name)
    if file is not None:
        text = text.replace(f"\nname: {name}\n", f"\nname: {json.dumps(file.stem)}\n")
        for command in ("run", "execute", "validate"):
            text = text.replace(f"servetwin {command} {name}", f"servetwin {command} {file.name}")
    return text


def load(
    path: str | Path,
    *,
    overrides: Sequence[str | Override] = (),
    trace: str | Path | None = None,
    seed: int | None = None,
    within: Path | None = None,
) -> Scenario:
    """The scenario of a file, or the shipped one of that name.

    Args:
        overrides: `engine.max_num_seqs=64`, a path inside the file and a YAML value, or such an `Override`; the last one wins.
        trace: replayed instead of the generated requests; relative to the working directory, or to `within`.
        seed: instead of the file's.
        within: a folder that the file, and all that it names, must lie in: for a scenario that comes from a stranger.

    Raises:
        InputError: one message that names the file, the path inside it, what was found and what is allowed.
    """
    text, source, base = _SHIPPED.find(path) if within is None else _confined(str(path), within)
    return loads(text, source=source, base=base, overrides=overrides, trace=trace, seed=seed, within=within)


def loads(
    text: str,
    *,
    source: str = "scenario",
    base: Path | None = None,
    overrides: Sequence[str | Override] = (),
    trace: str | Path | None = None,
    seed: int | None = None,
    within: Path | None = None,
) -> Scenario:
    """The scenario of a YAML text.

    Args:
        source: what messages call it. base: where its files are looked for.
        overrides, trace, seed: as of `load`.
        within: a folder that all files that it names must lie in, links followed: for a text that comes from a stranger. They are
            then looked for in that folder unless `base` says otherwise.

    Raises:
        InputError: as of `load`. What lies outside `within` is refused unopened, in the same words whether or not it exists.
    """
    data = documents.mapping(text, source)
    origin: dict[str, str] = {}
    for given in overrides:
        override = Override.parse(given) if isinstance(given, str) else given
        _put(data, override.location, copy.deepcopy(override.value), override.source)
        origin[dotted(override.location)] = override.source
    if trace is not None:
        _put(data, ("workload", "trace", "path"), _trace(trace, within), f"--trace {trace}")
    if seed is not None:
        data["seed"] = seed
        origin["seed"] = f"--seed {seed}"
    try:
        return Scenario.model_validate(data, context={"base": base, "within": within})
    except ValidationError as error:
        path, problem = one_message(error, data)
        for where, flag in origin.items():
            # Also where the flag made up a field on the way to its own.
            below, above = _inside(path, where), "unknown field" in problem and _inside(where, path)
            source = flag if below or above else source
        raise InputError(f"{source}: {path}: {problem}" if path else f"{source}: {problem}") from None


def changed(
    scenario: Scenario,
    overrides: Sequence[str | Override],
    *,
    trace: str | Path | None = None,
    within: Path | None = None,
) -> Scenario:
    """The same scenario with some values changed, as if its file said so. overrides, trace, within: as of `loads`.

    Raises:
        InputError: as of `loads`; messages call the scenario by its name.
    """
    return loads(scenario.to_yaml(), source=scenario.name, overrides=overrides, trace=trace, within=within)


def _confined(name: str, within: Path) -> Found:
    """A shipped scenario, or a file of that folder."""
    if name in names():
        return Found(_SHIPPED.text(name), f"{name}.yaml", None)
    file = place(name, within=within)
    return Found(documents.read_text(file), str(file), file.parent)


def _trace(given: str | Path, within: Path | None) -> str:
    """The path of a trace that replaces what a scenario generates."""
    file = Path(given).absolute() if within is None else place(str(given), within=within)
    if not os.path.isfile(file):
        found = "not a regular file (it is read twice)" if os.path.exists(file) else "there is no such file"
        raise InputError(f"--trace {given}: {found}")
    return str(file)


def _inside(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def _put(data: dict[str, Any], path: Location, value: Any, source: str) -> None:
    node: Any = data
    for depth, part in enumerate(path):
        here = dotted(path[:depth])
        if isinstance(part, int):
            if not isinstance(node, list) or part >= len(node):
                found = f"{len(node)} items" if isinstance(node, list) else repr(node)
                raise InputError(f"{source}: {here}: found {found}, so there is no item {part} (counted from 0)")
        elif not isinstance(node, Mapping):
            raise InputError(f"{source}: {here} is {node!r}, not a mapping with a field {part}; set {here} as a whole")
        if depth == len(path) - 1:
            node[part] = value
        elif isinstance(part, int):
            node = node[part]
        else:
            if node.get(part) is None:
                node[part] = {}
            elif part == "engine" and isinstance(node[part], str):
                node[part] = {"preset": node[part]}  # the short form
            node = node[part]


def json_schema() -> dict[str, Any]:
    """JSON schema of a scenario file, for editors; names of strategies are those of this installation."""
    schema = Scenario.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    engine = schema["$defs"]["Engine"]["properties"]
    engine["preset"]["enum"] = [*PRESETS, *ALIASES]
    engine["policy"]["enum"] = list(ORDERS)
    engine["batching"]["enum"] = list(BATCHINGS)
    engine["capacity_scheduler_policy"]["enum"] = list(CAPACITIES)
    names, *_ = schema["properties"]["router"]["oneOf"]
    names["enum"] = list(ROUTERS)
    for part in (schema, *schema["$defs"].values()):
        for name, text in _field_texts(part).items():
            part["properties"][name]["description"] = text
    return schema


def _field_texts(part: Mapping[str, Any]) -> dict[str, str]:
    """What the description of a part says of its fields under "Args:", as editors show it beside each."""
    _, _, text = str(part.get("description", "")).partition("Args:")
    fields = "|".join(part.get("properties", ()))
    # `one: text. other, third: text.`; a field begins a sentence or a half of one.
    pieces = re.split(rf"(?:^|(?<=[.;])) *((?:{fields})(?:, (?:{fields}))*): ", " ".join(text.split())) if text else []
    said = zip(pieces[1::2], pieces[2::2], strict=True)
    return {name: words.strip(" ;") for names, words in said for name in names.split(", ")}
