"""YAML read strictly: no key twice, numbers as version 1.2 writes them. Imported only where YAML is read, since a machine that
only measures may have no PyYAML."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from scenarios.errors import InputError


class _RepeatedKeyError(Exception):
    def __init__(self, key: object, line: int, first: int) -> None:
        self.key, self.line, self.first = key, line, first


class _Loader(yaml.SafeLoader):
    """Safe YAML with the scalars of version 1.2: `1e9` is a number, `on` and `1:30` are text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if isinstance(key, Hashable):
                if key in seen:
                    raise _RepeatedKeyError(key, line, seen[key])
                seen[key] = line
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
    return int(text, 16) if text.startswith("0x") else int(text)


_Loader.add_constructor("tag:yaml.org,2002:int", _int)


def parse(text: str, source: str) -> Any:
    """The document of a YAML text.

    Raises:
        InputError: broken syntax, a key written twice, several documents.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except _RepeatedKeyError as error:
        raise InputError(
            f"{source}: line {error.line}: key {error.key!r} is written twice (first on line {error.first}); keep one"
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise InputError(f"{source}: {where}this is not valid YAML: {problem}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: this is not valid YAML: {error}") from None
