"""Cost profiles that a page can show: those that come with the package, and files of the workspace. Nothing here needs Streamlit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dashboard import uploads, workspace
from scenarios.errors import InputError, unknown
from sim.profiles import AnyProfile, load_profile, shipped_profiles
from studies import profile_list

FOLDERS = ("", "out", "out/profiles", uploads.FOLDER)
"""Of the workspace: where files are looked for. Others are opened by their path."""
MADE = "out/profiles"
"""Of the workspace: where profiles that are made here are written."""
MOST = 200
"""Files of a folder that are looked at."""
LARGEST = 50 << 20
"""Bytes of a file that is looked into."""


@dataclass(frozen=True)
class Entry:
    """One profile. name: what a link calls it: its name, or its path in the workspace. file: None of a shipped one.

    facts: model, hardware, dtype, tensor_parallel_size, engine, kind, cv_error, as `profile_list.row_of` has them.
    """

    name: str
    file: Path | None
    facts: Mapping[str, Any]

    @property
    def title(self) -> str:
        """As people call it."""
        if self.file is not None and self.file.parent == uploads.folder():
            return f"{self.file.stem[uploads.DIGITS + 1 :]} (uploaded)"
        return self.name

    def load(self) -> AnyProfile:
        """The profile.

        Raises:
            InputError: its file is gone, or another one by now.
        """
        return load_profile(self.name if self.file is None else self.file)


def every() -> list[Entry]:
    """Files of the workspace first, the latest before the others; then what is shipped."""
    return [*_files(), *_shipped()]


def named(name: str) -> Entry:
    """The profile that a link names.

    Raises:
        InputError: there is none of that name, it lies outside the workspace, or the file is none.
    """
    if name in shipped_profiles():
        return next(entry for entry in _shipped() if entry.name == name)
    if not name.endswith(".json"):
        raise InputError(f"profile: {unknown('profile', name, shipped_profiles())}")
    path = workspace.inside(name)
    if not path.is_file():
        raise InputError(f"profile: the workspace {workspace.folder()} has no file {name}")
    if path.stat().st_size > LARGEST:
        raise InputError(f"{name}: is larger than {LARGEST >> 20} MiB, so it is no profile")
    return Entry(workspace.relative(path), path, profile_list.row_of(name, load_profile(path)))


def free(name: str) -> Path:
    """A file in the workspace for a new profile of that name, which is not there yet.

    Raises:
        InputError: no file can be called that.
    """
    from studies.results import file_name

    if not name.strip():
        raise InputError("Called: give the profile a name of letters or digits")
    plain = file_name(name)[:80]
    found, number = workspace.inside(f"{MADE}/{plain}.json"), 2
    while found.exists():
        found, number = workspace.inside(f"{MADE}/{plain}-{number}.json"), number + 1
    return found


def _shipped() -> list[Entry]:
    return [Entry(row["name"], None, row) for row in _rows()]


@lru_cache(maxsize=1)
def _rows() -> list[dict[str, Any]]:
    return profile_list.rows({})


def _files() -> Iterator[Entry]:
    found: list[tuple[float, Path]] = []
    for folder in FOLDERS:
        try:
            paths = sorted((workspace.folder() / folder).glob("*.json"))[:MOST]
            held = [(path.lstat(), path) for path in paths if path.is_file() and not path.is_symlink()]
        except OSError:
            continue
        found += [(about.st_mtime, path) for about, path in held if about.st_size <= LARGEST]
    copied = set()  # a profile that was used in Explore is among the uploads as well
    for when, path in sorted(found, key=lambda item: (item[1].parent == uploads.folder(), -item[0], item[1])):
        facts, digest = _facts(path, when)
        if facts is not None and digest not in copied:
            copied.add(digest)
            yield Entry(workspace.relative(path), path, facts)


@lru_cache(maxsize=5 * MOST)
def _facts(path: Path, _when: float) -> tuple[Mapping[str, Any] | None, str]:
    """What the list says of a file, and its digest; nothing of a JSON file that is no profile."""
    try:
        with path.open("rb") as file:
            if b'"schema_version"' not in file.read(4096):
                return None, ""
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return profile_list.row_of(path.stem, load_profile(path)), digest
    except (InputError, OSError):
        return None, ""
