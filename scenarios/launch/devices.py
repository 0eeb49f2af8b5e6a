"""From the name that a driver gives a device to a sheet of the catalog."""

from __future__ import annotations

import re

from scenarios.hardware import CATALOG

_LOGGED = (
    re.compile(r"device_name=([A-Za-z][^,/'\"\s]*)"),
    re.compile(r"GPU \d+: ([A-Z][^(\n]{3,60})"),
    re.compile(r"\b((?:NVIDIA|Tesla)[ _](?:GeForce[ _])?(?:RTX[ _](?:PRO[ _])?\d{4}|[ABHL]\d{2,3}\w?\b)[-\w ]{0,24})"),
)


def devices(line: str) -> list[str]:
    """Names of devices in a log line, as the driver writes them."""
    found: list[str] = []
    for pattern in _LOGGED:
        found += [match.removesuffix(".json").replace("_", " ").strip() for match in pattern.findall(line)]
    return found


def sheet_of(device: str) -> str | None:
    """The catalog's name of a device: every word of it must be in the driver's name (`NVIDIA A100-SXM4-80GB`)."""
    words = {word.removesuffix("B") if re.fullmatch(r"\d+GB", word) else word for word in _words(device)}
    fitting = [name for name in CATALOG if name != "cpu" and set(_words(name)) <= words]
    return max(fitting, key=len, default=None)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
