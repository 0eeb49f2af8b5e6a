"""Finding and reading profiles: files, and those that come with the package."""

from __future__ import annotations

import codecs
import json
from functools import cache
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from scenarios.cost import profile_names, unknown_profile
from scenarios.errors import InputError, one_message
from sim.operator_profile import OperatorProfile
from sim.profile import Profile

SCHEMA_VERSION = 1
OPERATORS, WHOLE_STEPS = "operators", "whole steps"

AnyProfile = Profile | OperatorProfile


def shipped_profiles() -> list[str]:
    """Names of the profiles that come with the package: `file`, or `folder/file` where they are grouped by hardware."""
    return list(profile_names())


def shipped_bytes(name: str) -> bytes:
    """The file of a shipped profile."""
    return resources.files("calibration.profiles").joinpath(*f"{name}.json".split("/")).read_bytes()


def load_profile(source: Path | str) -> AnyProfile:
    """Reads a profile file, or a shipped profile by its name.

    Raises:
        InputError: no such profile, or the file is not one.
    """
    path = Path(source)
    if path.is_file():
        return _parsed(path.read_bytes(), str(path))
    if str(source) in profile_names():
        return _shipped(str(source))
    raise InputError(unknown_profile(str(source)))


@cache
def _shipped(name: str) -> AnyProfile:
    """Read once: thousands of runs may ask for the same."""
    return _parsed(shipped_bytes(name), f"shipped profile {name}")


def _parsed(text: bytes, where: str) -> AnyProfile:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        found = data.get("schema_version", "none") if isinstance(data, dict) else type(data).__name__
        raise InputError(f"{where}: schema_version: found {found}, allowed: {SCHEMA_VERSION}")
    said = data.get("kind", WHOLE_STEPS)
    if said not in (OPERATORS, WHOLE_STEPS):
        raise InputError(
            f"{where}: kind: found {str(said)[:40]!r}, allowed: {OPERATORS}, or no kind where whole steps were fitted"
        )
    kind: type[AnyProfile] = OperatorProfile if said == OPERATORS else Profile
    try:
        profile = kind.model_validate_json(text.removeprefix(codecs.BOM_UTF8))
    except ValidationError as error:
        inside, problem = one_message(error, data)
        raise InputError(f"{where}: {inside or 'profile'}: {problem}") from None
    if (least := _least_ns(profile)) < 1:
        raise InputError(
            f"{where}: a step may take {least:g} ns, but time must pass in every step; are its units nanoseconds?"
        )
    return profile


def _least_ns(profile: AnyProfile) -> float:
    """What no step costs less than, attention aside."""
    if isinstance(profile, Profile):
        return profile.dense[0][1] + profile.coefficients.head
    return sum(min(curve.ns) for curve in profile.tokens.values()) + min(profile.head.ns) + profile.host.step_ns
