"""Numbers in a link."""

from __future__ import annotations


def whole(text: str, least: int, most: int) -> int | None:
    """The whole number that a text is, if it lies between two others. A link may hold more digits than Python reads."""
    if not text.isdecimal() or len(text.lstrip("0")) > len(str(most)):
        return None
    found = int(text.lstrip("0") or "0")
    return found if least <= found <= most else None
