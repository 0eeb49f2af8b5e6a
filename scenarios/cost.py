"""Where step durations come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import PlainSerializer, SerializationInfo, ValidationInfo, field_validator, model_validator

from scenarios.errors import misplaced
from scenarios.fields import Section, digest, wants_digest


def _profile_or_digest(profile: str | None, info: SerializationInfo) -> str | None:
    return digest(profile) if profile and wants_digest(info) and Path(profile).is_file() else profile


class Cost(Section):
    """Where step durations come from: `roofline` (sheet and architecture) or a measured `profile` (a path, the name of
    a shipped one, or `auto` for the shipped one that fits). Naming a profile is enough: `cost: {profile: mine.json}`.

    noise: steps take more or less than the profile says, as they did where it was measured: for percentiles, not only means.
    """

    later: ClassVar[tuple[str, ...]] = ("noise",)

    source: Literal["roofline", "profile"] = "roofline"
    profile: Annotated[str | None, PlainSerializer(_profile_or_digest)] = None
    noise: bool = False

    @model_validator(mode="before")
    @classmethod
    def _profile_is_a_source(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("profile") is not None and "source" not in given:
            return {**given, "source": "profile"}
        return given

    @field_validator("profile")
    @classmethod
    def _beside(cls, profile: str | None, info: ValidationInfo) -> str | None:
        base = (info.context or {}).get("base")
        if profile and base is not None and (base / profile).is_file():
            return str(base / profile)
        if profile and profile.endswith(".json") and not Path(profile).is_file():
            raise ValueError(f"there is no file {profile}")
        return profile

    @model_validator(mode="after")
    def _has_profile(self) -> Cost:
        if self.source == "profile" and not self.profile:
            raise misplaced("is required and missing where source is profile", "profile")
        if self.source == "roofline" and self.profile:
            raise misplaced("found roofline beside a profile; leave one of them out", "source")
        if self.source == "roofline" and self.noise:
            raise misplaced("found true, but a roofline has no residuals; name a profile beside it", "noise")
        return self
