"""Texts on pages, which read Markdown: what comes from a link, a file or a scenario is shown as it is and nothing of it is markup."""

from __future__ import annotations

import re

MOST = 600
"""Characters of a message."""


def literal(text: str) -> str:
    """A text of any length as it is. Underscores within words are no markup and stay."""
    return re.sub(r"([\\`*\[\]<>$~#|])", r"\\\1", text)


def message(text: object) -> str:
    """A message as it is; one that quotes a long value is cut in its middle."""
    said = str(text)
    return literal(said if len(said) <= MOST else f"{said[: MOST // 2]} … {said[-MOST // 2 :]}")
