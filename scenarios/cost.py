"""Where step durations come from."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainSerializer, SerializationInfo, ValidationInfo, model_validator

from scenarios.errors import misplaced, nearest
from scenarios.fields import Section, digest, wants_digest
from scenarios.paths import NamesFile, is_confined, located

AUTO = "auto"
"""As a profile's name: the shipped one of the scenario's model, hardware, precisions and tensor-parallel degree."""


@cache
def profile_names() -> tuple[str, ...]:
    """Names of the profiles that come with the package: `file`, or `folder/file` where they are grouped by hardware."""
    names = []
    for entry in resources.files("calibration.profiles").iterdir():
        if entry.is_dir():
            names += [f"{entry.name}/{f.name}" for f in entry.iterdir() if f.name.endswith(".json")]
        elif entry.name.endswith(".json"):
            names.append(entry.name)
    return tuple(sorted(name.removesuffix(".json") for name in names))


def unknown_profile(name: str) -> str:
    """What to say where no profile has that name: the nearest few, for there are more than anybody reads."""
    names = profile_names()
    close = difflib.get_close_matches(name.lower(), names, n=6, cutoff=0.3) or names[:6]
    hint = f": did you mean {close[0]!r}?" if nearest(name, names) else "."
    return (
        f"unknown profile {name!r}{hint} {len(names)} come with the package (`servetwin profiles` lists them), {', '.join(close)} "
        "among them; or give the path of a profile's JSON file"
    )


def _file_or_name(given: Any, info: ValidationInfo) -> Any:
    """A file beside the scenario by its path, a name as it is."""
    if not isinstance(given, str) or not given:
        return given
    path = located(given, info)
    if os.path.isfile(path):
        return str(path)
    if given.endswith(".json") and (is_confined(info) or not os.path.isfile(given)):
        raise ValueError(f"there is no file {given}")
    # A name that is none of them would be looked for as a file when its profile is read.
    if is_confined(info) and given not in (AUTO, *profile_names()):
        raise ValueError(unknown_profile(given))
    return given


def _profile_or_digest(profile: str | None, info: SerializationInfo) -> str | None:
    return digest(profile) if profile and wants_digest(info) and os.path.isfile(profile) else profile


class Cost(Section):
    """Where step durations come from: `roofline` (sheet and architecture) or a measured `profile` (a path, the name of
    a shipped one, or `auto` for the shipped one that fits). Naming a profile is enough: `cost: {profile: mine.json}`.

    noise: steps take more or less than the profile says, as they did where it was measured: for percentiles, not only means.
    """

    later: ClassVar[tuple[str, ...]] = ("noise",)

    source: Literal["roofline", "profile"] = "roofline"
    profile: Annotated[str | None, NamesFile(_file_or_name), PlainSerializer(_profile_or_digest)] = None
    noise: bool = False

    @model_validator(mode="before")
    @classmethod
    def _profile_is_a_source(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("profile") is not None and "source" not in given:
            return {**given, "source": "profile"}
        return given

    @model_validator(mode="after")
    def _has_profile(self) -> Cost:
        if self.source == "profile" and not self.profile:
            raise misplaced("is required and missing where source is profile", "profile")
        if self.source == "roofline" and self.profile:
            raise misplaced("found roofline beside a profile; leave one of them out", "source")
        if self.source == "roofline" and self.noise:
            raise misplaced("found true, but a roofline has no residuals; name a profile beside it", "noise")
        return self
