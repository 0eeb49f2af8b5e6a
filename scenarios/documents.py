"""Reading YAML strictly: one mapping a file, no key twice, numbers as YAML 1.2 writes them."""

from __future__ import annotations

import copy
import gzip
import io
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from scenarios.errors import InputError, one_message

Model = TypeVar("Model", bound=BaseModel)

_MOST_UNPACKED = 1 << 30
_MOST_RATIO = 200
"""Bytes that a packed one may stand for: traces reach some 30, files made to fill a memory 1,000."""


def parse(text: str, source: str) -> Any:
    """The document of a YAML text.

    Raises:
        InputError: broken syntax, a key written twice, several documents, or too much: see `strict_yaml.parse`.
    """
    return copy.deepcopy(_parsed(text, source))


@lru_cache(maxsize=32)
def _parsed(text: str, source: str) -> Any:
    """The cells of a sweep are made of one text, and reading it takes most of the time that a scenario takes to load."""
    from scenarios import strict_yaml

    return strict_yaml.parse(text, source)


def read_text(path: Path) -> str:
    """A file's text, unpacked if it is gzip, or an InputError that says why not."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return text_of(raw, str(path))


def text_of(raw: bytes, source: str) -> str:
    """The text of a file's bytes, unpacked if they are gzip.

    Raises:
        InputError: not UTF-8, or a gzip file that is broken or unpacks to far more than any text does.
    """
    try:
        return (_unpacked(raw, source) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        hint = "; it is UTF-16: save it as UTF-8" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise InputError(f"{source}: not text in UTF-8 (byte {error.start}){hint}") from None
    except EOFError:
        raise InputError(f"{source}: the gzip file is truncated; copy it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{source}: a broken gzip file: {error}") from None


def _unpacked(raw: bytes, source: str) -> bytes:
    most = min(_MOST_UNPACKED, _MOST_RATIO * len(raw) + (1 << 20))
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        unpacked = file.read(most + 1)
    if len(unpacked) > most:
        raise InputError(f"{source}: unpacks to more than {most >> 20:,} MiB, which is not read; give a part of it")
    return unpacked


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that holds one mapping with text keys."""
    return mapping(read_text(path), str(path))


def mapping(text: str, source: str) -> dict[str, Any]:
    """A YAML text that holds one mapping with text keys."""
    data = parse(text, source)
    if data is None:
        raise InputError(f"{source}: the file is empty, but fields (name: value) are needed")
    if not isinstance(data, dict):
        kind = {"list": "a list", "str": "plain text"}.get(type(data).__name__, f"a single {type(data).__name__}")
        raise InputError(f"{source}: found {kind}, but a mapping of fields (name: value) is needed")
    for key in data:
        if not isinstance(key, str):
            raise InputError(f"{source}: field names are text, found {key!r}")
    return data


def validated(model: type[Model], text: str, source: str) -> Model:
    """What a YAML text says, as a pydantic model.

    Raises:
        InputError: names the first field that is wrong, and what is allowed.
    """
    data = mapping(text, source)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        path, problem = one_message(error, data)
        raise InputError(f"{source}: {path}: {problem}" if path else f"{source}: {problem}") from None
