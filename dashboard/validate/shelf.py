"""Validations that a page can show: those that come with the package, and result folders of the workspace. Without Streamlit."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dashboard import workspace
from scenarios.errors import InputError, unknown
from studies.validations import made, shipped
from studies.validations.record import Validation

FILE, RECORD = "validation.json", "record.json"
MADE = "out/validations"
"""Of the workspace: where validations that are made here are written."""
LARGEST = 100 << 20
"""Bytes of a file that is opened."""
MOST = 200


@dataclass(frozen=True)
class Kept:
    """name: what a link calls it: a shipped name, or a folder of the workspace. title: what against what. problem: why it cannot be
    opened."""

    name: str
    title: str
    found: Validation | None
    problem: str = ""


def every() -> list[Kept]:
    """What is shipped, then folders of the workspace, the latest first."""
    held = workspace.holding((FILE, "run.json")).folders
    mine = sorted(held, key=lambda folder: (-(folder / FILE).stat().st_mtime, folder))[:MOST]
    return [Kept(one.name, one.title, one) for one in shipped.shipped()] + [_kept(folder) for folder in mine]


def named(name: str) -> Validation:
    """The validation that a link names.

    Raises:
        InputError: there is none, it lies outside the workspace, or it cannot be read.
    """
    if name in shipped.NAMES:
        return shipped.load(name)
    folder = workspace.inside(name)
    if not folder.is_dir():
        raise InputError(
            f"validation: {unknown('validation', name, shipped.NAMES)}, or a folder of the workspace {workspace.folder()}"
        )
    return _read(folder)


def free(name: str) -> Path:
    """A folder for a new validation."""
    from studies.results import file_name

    plain = file_name(name)[:80]
    found, number = workspace.inside(f"{MADE}/{plain}"), 2
    while found.exists():
        found, number = workspace.inside(f"{MADE}/{plain}-{number}"), number + 1
    return found


def _kept(folder: Path) -> Kept:
    name = workspace.relative(folder)
    try:
        found = _read(folder)
    except InputError as error:
        return Kept(name, folder.name, None, str(error))
    return Kept(name, found.title, found)


def _read(folder: Path) -> Validation:
    where = workspace.relative(folder)
    for file in (FILE, RECORD, "run.json"):
        workspace.inside(folder / file)  # a link within a folder leads out as well as one to it
    try:
        if (folder / RECORD).is_file():
            return Validation.model_validate_json(_text(folder / RECORD)).model_copy(update={"name": folder.name})
        stored, info = json.loads(_text(folder / FILE)), json.loads(_text(folder / "run.json"))
        return made.of_stored(
            stored, name=folder.name, title=f"{info['name']}: simulated against executed", measured=f"{stored['device']}, {stored['clock']} clock",
            about=f"Executed {stored['repeats']} times and simulated with the profile's step costs.",
        )  # fmt: skip
    except (OSError, KeyError, TypeError, ValueError, ValidationError, RecursionError, AttributeError):
        raise InputError(
            f"{where}: holds no validation that can be opened; `servetwin validate SCENARIO --out FOLDER` writes one"
        ) from None


def _text(file: Path) -> str:
    if file.stat().st_size > LARGEST:
        raise ValueError("too large")
    return re.sub("^\ufeff", "", file.read_text(encoding="utf-8"))
