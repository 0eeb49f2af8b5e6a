"""Values that Python programs print: `key=value, ...` of objects and `'key': value, ...` of dictionaries, however nested."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}


def pairs(text: str) -> dict[str, Any]:
    """The names and values of the first level, up to the end of the bracket that they stand in.

    What is no literal (an object's own notation, an enumeration) stays text; what is cut off is left out.
    """
    found: dict[str, Any] = {}
    for item in _items(text):
        cut = _separator(item)
        if cut is None:
            continue
        name = item[:cut].strip().strip("'\"")
        if name.isidentifier():
            found[name] = _value(item[cut + 1 :].strip())
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _items(text: str) -> Iterator[str]:
    """Pieces between commas that stand in no bracket and no quotes."""
    stack: list[str] = []
    quote, start, at = "", 0, 0
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _OPEN:
            stack.append(_OPEN[char])
        elif stack and char == stack[-1]:
            stack.pop()
        elif char in ")]}" and not stack:
            break  # the end of what holds them all
        elif char == "," and not stack:
            yield text[start:at]
            start = at + 1
        at += 1
    if not quote and not stack:
        yield text[start:at]


def _separator(item: str) -> int | None:
    """Where a name ends and its value begins."""
    stripped = item.lstrip()
    quoted = stripped[:1] in ("'", '"')
    cut = item.find(":", item.find(stripped[0], item.find(stripped[0]) + 1)) if quoted else item.find("=")
    return cut if cut > 0 else None
