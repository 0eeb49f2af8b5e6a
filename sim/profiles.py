"""Finding and reading profiles: files, and those that come with the package."""

from __future__ import annotations

import difflib
import json
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from scenarios.errors import InputError, nearest, one_message
from sim.operator_profile import OperatorProfile
from sim.profile import Profile

SCHEMA_VERSION = 1

AnyProfile = Profile | OperatorProfile


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with the package: `file`, or `folder/file` where they are grouped by hardware."""
    root = resources.files("calibration.profiles")
    names = []
    for entry in root.iterdir():
        if entry.is_dir():
            names += [f"{entry.name}/{f.name}" for f in entry.iterdir() if f.name.endswith(".json")]
        elif entry.name.endswith(".json"):
            names.append(entry.name)
    return sorted(name.removesuffix(".json") for name in names)


def shipped_bytes(name: str) -> bytes:
    """The file of a shipped profile."""
    return resources.files("calibration.profiles").joinpath(*f"{name}.json".split("/")).read_bytes()


def load_profile(source: Path | str) -> AnyProfile:
    """Reads a profile file, or a shipped profile by its name.

    Raises:
        InputError: no such profile, or the file is not one.
    """
    path, names = Path(source), shipped_profiles()
    if path.is_file():
        text, where = path.read_bytes(), str(path)
    elif str(source) in names:
        text = shipped_bytes(str(source))
        where = f"shipped profile {source}"
    else:
        raise InputError(_no_profile(str(source), names))
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        found = data.get("schema_version", "none") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{where}: schema_version: found {found}, allowed: {SCHEMA_VERSION}")
    kind: type[AnyProfile] = OperatorProfile if data.get("kind") == "operators" else Profile
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        inside, problem = one_message(error, data)
        raise InputError(f"{where}: {inside or 'profile'}: {problem}") from None


def _no_profile(name: str, names: list[str]) -> str:
    """What to say where there is none of that name: the nearest few, for there are more than anybody reads."""
    close = difflib.get_close_matches(name.lower(), names, n=6, cutoff=0.3) or names[:6]
    hint = f": did you mean {close[0]!r}?" if nearest(name, names) else "."
    return (
        f"unknown profile {name!r}{hint} {len(names)} come with the package (`servetwin profiles` lists them), {', '.join(close)} "
        "among them; or give the path of a profile's JSON file"
    )
