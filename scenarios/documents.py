"""Reading YAML strictly: one mapping a file, no key twice, numbers as YAML 1.2 writes them."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Hashable
from pathlib import Path
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


def read_text(path: Path) -> str:
    """A file's text, unpacked if it is gzip, or an InputError that says why not."""
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8 (byte {error.start})") from None
    except EOFError:
        raise InputError(f"{path}: the gzip file is truncated; copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: a broken gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that holds one mapping with text keys."""
    return mapping(read_text(path), str(path))


def mapping(text: str, source: str) -> dict[str, Any]:
    """A YAML text that holds one mapping with text keys."""
    data = parse(text, source)
    if data is None:
        raise InputError(f"{source}: the file is empty; a scenario needs at least model, hardware and workload")
    if not isinstance(data, dict):
        kind = {"list": "a list", "str": "plain text"}.get(type(data).__name__, f"a single {type(data).__name__}")
        raise InputError(f"{source}: found {kind}, but a scenario is a mapping of fields (name: value)")
    for key in data:
        if not isinstance(key, str):
            raise InputError(f"{source}: field names are text, found {key!r}")
    return data
