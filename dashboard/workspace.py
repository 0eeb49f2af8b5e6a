"""The folder that the dashboard reads and writes: nothing that a page names leads out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from scenarios.errors import InputError

VARIABLE = "SERVETWIN_WORKSPACE"
"""Of the environment: which folder that is; the working directory of the server if not given."""
DEEPEST = 4
"""Folders within folders that are looked into."""


def folder() -> Path:
    return Path(os.environ.get(VARIABLE) or ".").resolve()


def inside(name: str | Path) -> Path:
    """A path below the workspace.

    Raises:
        InputError: it leads out of it, whether or not there is something.
    """
    top = folder()
    path = (top / name).resolve()
    if not path.is_relative_to(top):
        raise InputError(
            f"{name}: lies outside the workspace {top}; start the dashboard with --workspace FOLDER to open others"
        )
    return path


def holding(*names: str) -> list[Path]:
    """Folders below the workspace that hold files of all these names, by path; hidden ones are not looked into."""
    return sorted(_holding(folder(), names, DEEPEST))


def _holding(above: Path, names: tuple[str, ...], depth: int) -> Iterator[Path]:
    try:
        below = {entry.name: entry for entry in os.scandir(above)}
    except OSError:
        return
    if all(name in below for name in names):
        yield above
    if depth:
        for name, entry in below.items():
            if entry.is_dir(follow_symlinks=False) and not name.startswith((".", "__")) and name != "node_modules":
                yield from _holding(above / name, names, depth - 1)
