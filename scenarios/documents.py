"""Reading YAML strictly: one mapping a file, no key twice, numbers as YAML 1.2 writes them."""

from __future__ import annotations

import copy
import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from scenarios.errors import InputError, one_message

Model = TypeVar("Model", bound=BaseModel)


def parse(text: str, source: str) -> Any:
    """The document of a YAML text.

    Raises:
        InputError: broken syntax, a key written twice, several documents.
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
