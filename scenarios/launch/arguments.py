"""From words to what each says, by an engine's table: spellings, short forms, `--no-`, `--flag=value`, JSON by dots."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scenarios import documents
from scenarios.errors import InputError
from scenarios.launch.command import SECRET
from scenarios.launch.flags import Flag, Given, Table, ValueNotModelled

_BOOLEANS = ("true", "false")


@dataclass
class Arguments:
    """What a launch states.

    Args:
        positional: words that belong to no flag. given: by setting, the last one wins. not_modelled: by the flag's first name,
            the flag as written and its effect. harmless: flags that change no timing. unknown: flag as written, and the
            nearest known one.
    """

    positional: list[str] = field(default_factory=list)
    given: dict[str, Given] = field(default_factory=dict)
    not_modelled: dict[str, tuple[str, str]] = field(default_factory=dict)
    harmless: list[str] = field(default_factory=list)
    unknown: dict[str, str | None] = field(default_factory=dict)


def read_arguments(table: Table, argv: Sequence[str], env: Mapping[str, str]) -> Arguments:
    """What a command line states; a file that it names by `--config` stands below what the line itself says.

    Args:
        env: variables whose values are known, for `$NAME`.

    Raises:
        InputError: a flag without its value, a value that the engine would refuse.
    """
    found = Arguments()
    _read(table, argv, env, found, "command")
    config = found.given.pop("config", None)
    if config is not None:
        below = Arguments()
        _read(table, list(_of_file(Path(config.value))), env, below, "config file")
        below.given.pop("config", None)
        found.given = below.given | found.given
        found.positional = found.positional or below.positional
        found.not_modelled = below.not_modelled | found.not_modelled
        found.unknown = below.unknown | found.unknown
        found.harmless = below.harmless + found.harmless
    return found


def read_logged(table: Table, pairs: Mapping[str, Any], where: str, complete: bool) -> Arguments:
    """What an engine logged of its arguments.

    Args:
        pairs: by the argument's name. where: what the log calls them. complete: they hold defaults too, so that an argument
            which is not modelled says nothing about the launch.
    """
    found = Arguments()
    for name, value in pairs.items():
        flag = table.get(name)
        if value is None or flag is None or (complete and flag.sets is None):
            continue
        if isinstance(value, list) and flag.kind != "list":
            value = value[0] if value else None
        raw = json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
        try:
            _say(flag, f"--{flag.names[0]}", raw, found, "log", f"{name}={raw} in {where}")
        except InputError:
            continue  # a value in the notation of another version: the command's own stands
    return found


def _of_file(path: Path) -> Iterator[str]:
    """The words that a YAML file of arguments stands for."""
    for key, value in documents.read_mapping(path).items():
        if value is None or value is False:
            if value is False:
                yield f"--no-{key}"
            continue
        yield f"--{key}"
        if isinstance(value, dict):
            yield json.dumps(value)
        elif isinstance(value, list):
            yield from (str(item) for item in value)
        elif value is not True:
            yield str(value)


def _read(table: Table, argv: Sequence[str], env: Mapping[str, str], found: Arguments, origin: str) -> None:
    words = [_expanded(word, env) for word in argv]
    parts: dict[str, dict[str, Any]] = {}  # --flag.key value, gathered
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-" or re.fullmatch(r"-\d+(\.\d+)?", word):
            found.positional.append(word)
            continue
        name, equals, value = _split(word)
        flag, negated, dots = _lookup(table, name)
        if flag is None:
            secret = bool(SECRET.search(name))
            written = name if secret else word
            if not equals and at < len(words) and not words[at].startswith("-"):
                written, at = name if secret else f"{word} {words[at]}", at + 1
            close = difflib.get_close_matches(name.replace("_", "-"), table.names, n=1, cutoff=0.7)
            found.unknown[written] = close[0] if close else None
            continue
        values: list[str] = [value] if equals else []
        if not equals:
            at = _take(flag, negated, bool(dots), words, at, values)
        if not values:
            if flag.kind != "switch" and not negated:
                raise InputError(f"{name}: a value must follow it")
            values = ["false" if negated else "true"]
        if dots:
            _put(parts.setdefault(flag.names[0], {}), dots, values[0])
            _say(flag, name.split(".")[0], json.dumps(parts[flag.names[0]]), found, origin)
        else:
            written = (
                word
                if equals or (values in (["true"], ["false"]) and flag.kind == "switch")
                else f"{name} {' '.join(values)}"
            )
            _say(flag, name, " ".join(values), found, origin, written=written)


def _expanded(word: str, env: Mapping[str, str]) -> str:
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda m: env.get(m[1] or m[2], m[0]), word)


def _split(word: str) -> tuple[str, str, str]:
    """Name, `=` if there is one, value."""
    attached = re.fullmatch(r"-([Oqnr])(\d.*)", word)
    if attached:
        return f"-{attached[1]}", "=", attached[2]
    return word.partition("=")


def _lookup(table: Table, name: str) -> tuple[Flag | None, bool, list[str]]:
    """The flag, whether it is denied (`--no-`), and the keys behind a dot."""
    plain, *dots = name.split(".")
    key = plain[2:] if plain.startswith("--") else plain
    flag = table.get(key)
    if flag is None and key.replace("_", "-").startswith("no-"):
        return table.get(key[3:]), True, dots
    if flag is None and plain.startswith("--"):
        # As argparse reads them: the beginning of one name is enough.
        starts = {id(f): f for n in table.names if n.startswith(plain.replace("_", "-")) if (f := table.get(n[2:]))}
        flag = next(iter(starts.values())) if len(starts) == 1 and len(key) > 3 else None
    return flag, False, dots


def _take(flag: Flag, negated: bool, dotted: bool, words: Sequence[str], at: int, values: list[str]) -> int:
    """Takes the words that belong to a flag; returns where the next one stands."""
    if at >= len(words) or negated:
        return at
    word = words[at]
    if flag.kind == "switch":
        if word.lower() in _BOOLEANS:
            values.append(word.lower())
            return at + 1
        return at
    if word.startswith("-") and not re.match(r"-\.?\d", word):
        return at
    values.append(word)
    at += 1
    if flag.kind == "list" and not dotted:
        while at < len(words) and not words[at].startswith("-"):
            values.append(words[at])
            at += 1
    return at


def _put(tree: dict[str, Any], keys: Sequence[str], text: str) -> None:
    for key in keys[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            inner = tree[key] = {}
        tree = inner
    try:
        tree[keys[-1]] = json.loads(text)
    except ValueError:
        tree[keys[-1]] = text


def _say(flag: Flag, name: str, raw: str, found: Arguments, origin: str, written: str | None = None) -> None:
    """Notes what one flag says."""
    written = written or f"{name} {raw}"
    if flag.sets is None:
        off = raw == "false" and flag.kind == "switch"
        if flag.effect is None or off or raw.lower() in flag.unless:
            found.harmless.append(name)
        else:
            found.not_modelled[flag.names[0]] = (_trimmed(written), flag.effect)
        return
    if "$" in raw and flag.kind != "json":
        raise InputError(f"{written}: a shell variable that is set nowhere in the command; write its value")
    try:
        found.given[flag.sets] = Given(flag.read(raw), _trimmed(written), origin)
    except ValueNotModelled as why:
        found.not_modelled[flag.names[0]] = (_trimmed(written), str(why))
    except (ValueError, OverflowError) as why:
        raise InputError(f"{_trimmed(written)}: {why}") from None


def _trimmed(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:157] + "..."
