"""How bad input is refused: one message with the file, the path inside it, what was found and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

Location = tuple[int | str, ...]


class InputError(ValueError):
    """Something that the user wrote cannot be used. The message is meant for them and stands alone."""


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name that looks most like `name`, or None if nothing comes close."""
    by_lower = {a.lower(): a for a in allowed}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None


def unknown(kind: str, name: object, allowed: Iterable[str]) -> str:
    """Words for a name that is not in a list: the nearest one first, then all of them."""
    names = list(allowed)
    close = nearest(str(name), names)
    hint = f": did you mean {close!r}?" if close else "."
    return f"unknown {kind} {shown(name)}{hint} Allowed: {', '.join(names)}"


def check_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """The name itself if it is one of `allowed`, else an error that lists them; raised inside validators."""
    names = list(allowed)
    if name not in names:
        raise ValueError(unknown(kind, name, names))
    return name


def misplaced(message: str, *path: int | str) -> PydanticCustomError:
    """An error found by a validator of the whole, which blames the value at `path` below it."""
    # Braces would be read as a template by pydantic.
    return PydanticCustomError("misplaced", "{text}", {"text": message, "path": path})


@contextmanager
def beneath(*path: int | str) -> Iterator[None]:
    """What is blamed inside lies below `path`."""
    try:
        yield
    except PydanticCustomError as error:
        told = error.context or {}
        raise misplaced(str(told.get("text", error)), *path, *told.get("path", ())) from None


def check_keys(data: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuses unknown keys with the nearest valid one; raised inside validators, so that the path is known."""
    names = list(allowed)
    for key in data:
        if key not in names:
            raise misplaced(unknown("field", key, names), str(key))


def dotted(location: Sequence[int | str]) -> str:
    """`engine.max_num_seqs`, `workload.arrivals.stages[1].rate`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _walk(data: Any, details: ErrorDetails) -> tuple[Location, Any]:
    """The user's own path and value of an error; pydantic's location also names the tags of unions."""
    path: list[int | str] = []
    location = details["loc"]
    for depth, part in enumerate(location):
        if _holds(data, part):
            data = data[part]
            path.append(part)
        elif isinstance(data, Mapping) and part in [v for v in data.values() if isinstance(v, str)]:
            continue  # the tag of a union
        elif details["type"] == "missing":
            path.append(location[-1])
            break
        elif isinstance(data, Mapping | list | tuple):
            path += location[depth:]
            break
        else:
            break  # a short form: the user wrote no more than this value
    return tuple(path), data


def _holds(data: Any, part: int | str) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)


def shown(value: Any) -> str:
    """How messages write a value: as Python does, the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _sentence(error: ErrorDetails, found: Any) -> str:
    """What is wrong, in the user's terms."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "is required and missing"
    if kind in ("misplaced", "value_error"):
        return error["msg"].removeprefix("Value error, ")
    if kind == "union_tag_invalid":
        allowed = [name.strip("' ") for name in str(context["expected_tags"]).split(",")]
        return unknown(str(context["discriminator"]).strip("'"), context["tag"], allowed)
    if kind == "union_tag_not_found":
        return f"needs a field {context['discriminator']}"
    if kind == "literal_error":
        allowed = [name.strip("' ") for name in str(context["expected"]).replace(" or ", ",").split(",")]
        return unknown("value", found, allowed)
    if kind in ("int_type", "int_from_float"):
        return f"found {shown(found)}, but a whole number is needed"
    if kind == "float_type":
        return f"found {shown(found)}, but a number is needed"
    if kind == "bool_type":
        return f"found {shown(found)}, but true or false is needed"
    if kind == "string_type":
        return f"found {shown(found)}, but text is needed"
    if kind == "finite_number":
        return f"found {shown(found)}, but a finite number is needed"
    if kind in ("model_type", "model_attributes_type", "dataclass_type", "dict_type", "mapping_type"):
        return f"found {shown(found)}, but a mapping of fields is needed"
    if kind in ("list_type", "tuple_type"):
        return f"found {shown(found)}, but a list is needed"
    if kind == "too_short":
        return f"found {shown(found)}, but at least {context['min_length']} of them must be named"
    allowed_text = error["msg"].removeprefix("Input should ")
    return f"found {shown(found)}, but it should {allowed_text}"


def one_message(error: ValidationError, data: Any) -> tuple[str, str]:
    """The first problem of a pydantic error as (path, sentence); the sentence names the other paths that are wrong.

    Args:
        data: what was validated, as the user wrote it.
    """
    problems: dict[str, str] = {}
    for details in error.errors(include_url=False):
        location, found = _walk(data, details)
        location = (*location, *details.get("ctx", {}).get("path", ()))
        problems.setdefault(dotted(location), _sentence(details, found))
    path, sentence = next(iter(problems.items()))
    others = [p or "the document" for p in list(problems)[1:]]
    more = f" (also wrong: {', '.join(others[:5])}{', ...' if len(others) > 5 else ''})" if others else ""
    return path, sentence + more
