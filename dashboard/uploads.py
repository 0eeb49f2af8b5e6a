"""Files that people gave the dashboard: kept by what is in them, so that a link can name them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from dashboard import workspace
from scenarios.errors import InputError
from studies.reports import files

FOLDER = "out/uploads"
"""Within the workspace."""
DIGITS = 16
"""Of a SHA-256: what a link carries."""
LARGEST = 200
"""MiB of one file."""
SCENARIOS = ("yaml", "yml")
TRACES = ("csv", "jsonl", "json", "gz")
PROFILES = ("json",)
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Upload:
    """digest: the first `DIGITS` hexadecimal digits of the SHA-256 of its bytes. name: as it was called where it came from."""

    digest: str
    name: str
    path: Path

    def __str__(self) -> str:
        return self.name


def folder() -> Path:
    return workspace.folder() / FOLDER


def keep(name: str, content: bytes) -> Upload:
    """Keeps a file, once however often it comes.

    Raises:
        InputError: it is empty, or nothing can be written.
    """
    if not content:
        raise InputError(f"{name}: the file is empty")
    digest = hashlib.sha256(content).hexdigest()[:DIGITS]
    if (known := find(digest)) is not None:
        return known
    safe = _NAME.sub("-", Path(name).name).lstrip("-.")[-80:] or "file"
    path = folder() / f"{digest}-{safe}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(path) as part:
            part.write_bytes(content)
    except OSError as error:
        raise InputError(f"{name}: cannot be kept in {folder()} ({error.strerror})") from None
    return Upload(digest, safe, path)


def find(digest: str) -> Upload | None:
    """The file of that digest; None where nobody gave it to this server."""
    if not re.fullmatch(rf"[0-9a-f]{{{DIGITS}}}", digest):
        return None
    for path in sorted(folder().glob(f"{digest}-*")):
        return Upload(digest, path.name[DIGITS + 1 :], path)
    return None


def plain(message: str) -> str:
    """A message that names uploaded files as they were called where they came from."""
    return re.sub(rf"{re.escape(str(folder()))}/[0-9a-f]{{{DIGITS}}}-", "", message)
