"""The folder that the dashboard reads and writes: nothing that a page names leads out of it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from scenarios.errors import InputError

VARIABLE = "SERVETWIN_WORKSPACE"
"""Of the environment: which folder that is; the working directory of the server if not given."""
DEEPEST = 4
"""Folders within folders that are looked into."""
MOST_FOLDERS = 2000
"""Folders that are looked into: a page does not wait for a disk."""
MOST_ENTRIES = 20_000
"""Files and folders of one folder that are looked at."""


@dataclass(frozen=True)
class Held:
    """What a search found. whole: whether every folder was looked into, down to `DEEPEST`."""

    folders: tuple[Path, ...]
    whole: bool = True


def folder() -> Path:
    return Path(os.environ.get(VARIABLE) or ".").resolve()


def inside(name: str | Path) -> Path:
    """A path below the workspace, links in it followed.

    Raises:
        InputError: it leads out of it, whether or not there is something; or no file could be called that.
    """
    top = folder()
    try:
        path = (top / name).resolve()
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError, RuntimeError):  # too long, NUL in it, links in a circle
        raise InputError(f"{_said(name)}: is no name of a file or folder") from None
    if not path.is_relative_to(top):
        raise InputError(
            f"{_said(name)}: lies outside the workspace {top}; start the dashboard with --workspace FOLDER to open others"
        )
    return path


def relative(path: Path) -> str:
    """A path below the workspace as a page names it."""
    return path.relative_to(folder()).as_posix()


def holding(*kinds: Iterable[str]) -> Held:
    """Folders below the workspace that hold files of all the names of a kind, by path: not beyond links, nor in hidden folders, nor within
    one another."""
    wanted = [frozenset(kind) for kind in kinds]
    queue, found = deque([(folder(), 0)]), []
    looked, whole = 0, True
    while queue:
        above, depth = queue.popleft()  # those near the top first
        if looked == MOST_FOLDERS:
            whole = False
            break
        looked += 1
        names, below, complete = _entries(above)
        whole = whole and complete
        if any(kind <= names for kind in wanted):
            found.append(above)
        elif depth < DEEPEST:
            queue.extend((above / name, depth + 1) for name in below)
    return Held(tuple(sorted(found)), whole)


def _entries(above: Path) -> tuple[set[str], list[str], bool]:
    """Names in a folder, those of them that are folders to look into, and whether that was all."""
    try:
        with os.scandir(above) as entries:
            first = list(islice(entries, MOST_ENTRIES))
            complete = next(entries, None) is None
    except OSError:
        return set(), [], True
    below = sorted(e.name for e in first if not _passed_over(e.name) and e.is_dir(follow_symlinks=False))
    return {e.name for e in first}, below, complete


def _passed_over(name: str) -> bool:
    return name.startswith((".", "__")) or name == "node_modules"


def _said(name: str | Path) -> str:
    text = str(name).replace("\0", "\\0").encode("utf-8", "replace").decode()
    return text if len(text) <= 100 else f"{text[:100]}…"
