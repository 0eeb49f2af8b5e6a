"""Where the files that a scenario names are looked for, and how far it may reach.

A scenario of one's own may name any file. One that comes from a stranger is confined to a folder: what it names must lie there, or it
is refused before anything is opened, in the same words whether or not it exists.

Every field that may name a file is validated by a `NamesFile`, and each of those asks `located`.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BeforeValidator, ValidationInfo

from scenarios.errors import InputError, shown


class NamesFile(BeforeValidator):
    """The validator of a field whose value may be the path of a file."""


def located(given: str, info: ValidationInfo) -> Path:
    """The path that a field names, as seen from here.

    Raises:
        InputError: the scenario is confined to a folder, and this is not in it.
    """
    context = info.context or {}
    return place(given, context.get("base"), context.get("within"))


def is_confined(info: ValidationInfo) -> bool:
    """Whether the scenario comes from a stranger."""
    return (info.context or {}).get("within") is not None


def place(given: str, base: Path | None = None, within: Path | None = None) -> Path:
    """The path `given` beside `base`; it need not exist. within: the folder that it must lie in, links followed, if any.

    Raises:
        InputError: it lies outside, or is no path.
    """
    if "\0" in given:
        raise InputError(f"found {shown(given)}, but no path holds a NUL character")
    if within is None:
        path = Path(os.path.expanduser(given))
        return path if base is None else base / path
    roots = {os.path.abspath(within), os.path.realpath(within)}
    # By its name alone first: whoever asks for something outside learns nothing of what is there.
    path = Path(os.path.abspath(os.path.join(within if base is None else base, given)))
    if not given.startswith("~") and any(path.is_relative_to(root) for root in roots):
        path = Path(os.path.realpath(path))
        if path.is_relative_to(os.path.realpath(within)):
            return path
    raise InputError(f"found {shown(given)}, which lies outside the workspace; upload it")
