"""YAML read strictly: no key twice, no tags, numbers as version 1.2 writes them; and in bounded time and memory, whoever wrote it.
Imported only where YAML is read, since a machine that only measures may have no PyYAML."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.reader import ReaderError

from scenarios.errors import InputError, shown

MOST_TEXT = 500_000
"""Characters of a document; PyYAML reads some 50,000 a second."""
MOST_DEPTH = 64
_MOST_EXPANDED = 8 * MOST_TEXT  # characters and values, with what aliases stand for written out
_MOST_DIGITS = 100


class _RefusedError(Exception):
    """Valid YAML, but nothing that is read here. at: where it is found."""

    def __init__(self, problem: str, at: yaml.Event | yaml.Node) -> None:
        super().__init__(problem)
        self.line = 0 if at.start_mark is None else at.start_mark.line + 1


class _Loader(yaml.SafeLoader):
    """Safe YAML with the scalars of version 1.2: `1e9` is a number, `on` and `1:30` are text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.sizes: dict[yaml.Node, int] = {}  # of what is complete, as if every alias were written out

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            tag = shown(event.tag.replace("tag:yaml.org,2002:", "!!"))
            raise _RefusedError(
                f"found the tag {tag}, but tags are not read; write the plain value, and text in quotes", event
            )
        if self.depth == MOST_DEPTH:
            raise _RefusedError(f"this is nested more than {MOST_DEPTH} levels deep", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and node not in self.sizes:
            if isinstance(event, yaml.AliasEvent):
                raise _RefusedError(f"alias *{event.anchor} stands inside of what it repeats", event)
            self.sizes[node] = self._size(node)
            if self.sizes[node] > _MOST_EXPANDED:
                raise _RefusedError("with its aliases written out, this is too large", event)
        return node

    def _size(self, node: yaml.Node) -> int:
        if isinstance(node, yaml.MappingNode):
            return 1 + sum(self.sizes[part] for pair in node.value for part in pair)
        if isinstance(node, yaml.SequenceNode):
            return 1 + sum(self.sizes[part] for part in node.value)
        return 1 + len(node.value)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise _RefusedError(
                        f"key {shown(key)} is written twice (first on line {seen[key]}); keep one", key_node
                    )
                seen[key] = key_node.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    if len(text) > _MOST_DIGITS:
        raise _RefusedError(f"a number of {len(text):,} digits; more than {_MOST_DIGITS} are not read", node)
    return int(text, 16) if text.startswith("0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _int)


def parse(text: str, source: str) -> Any:
    """The document of a YAML text.

    Raises:
        InputError: broken syntax, a key written twice, several documents, a tag, or more than anybody writes by hand: more than
            MOST_TEXT characters, MOST_DEPTH levels, or aliases that stand for far more than is written.
    """
    if len(text) > MOST_TEXT:
        raise InputError(
            f"{source}: {len(text):,} characters of YAML, more than the {MOST_TEXT:,} that are read; lists as long as that belong into "
            "files of their own (a trace, a file of lengths)"
        )
    try:
        return yaml.load(text, Loader=_Loader)
    except _RefusedError as error:
        raise InputError(f"{source}: line {error.line}: {error}") from None
    except ReaderError as error:
        hint = "; is it UTF-16, or no text at all? Save it as UTF-8" if not error.character else ""
        found = f"character U+{error.character:04X} at place {error.position + 1}"
        raise InputError(f"{source}: this is not valid YAML: {found}, which YAML does not allow{hint}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{source}: {where}this is not valid YAML: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: this is not valid YAML: {error}") from None
