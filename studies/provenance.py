"""What results come from: versions of the packages, and of the code itself."""

from __future__ import annotations

import hashlib
import importlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

DECIDING = ("serving", "scenarios", "sim")
"""Packages whose code decides what a simulation gives."""


def versions() -> dict[str, str]:
    """Of servetwin, Python and numpy."""
    return {"servetwin": _own(), "python": platform.python_version(), "numpy": np.__version__}


@cache
def _own() -> str:
    try:
        return metadata.version("servetwin")
    except metadata.PackageNotFoundError:
        return "source tree"


@cache
def source() -> str:
    """Sixteen hex digits of the SHA-256 of every Python file of `DECIDING`: a policy that is being worked on is another one after each
    change, though its version is the same."""
    found = hashlib.sha256()
    for package in DECIDING:
        folder = Path(str(importlib.import_module(package).__file__)).parent
        for file in sorted(folder.rglob("*.py")):
            found.update(f"{package}/{file.relative_to(folder).as_posix()}\0".encode())
            found.update(file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def environment() -> dict[str, str]:
    """All of it: what two machines must have in common to give the same figures."""
    return versions() | {"source": source()}
