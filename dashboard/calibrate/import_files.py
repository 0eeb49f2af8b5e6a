"""Files that people upload to be imported: kept together under their own names, where a reader of such folders finds them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from dashboard import workspace
from scenarios.errors import InputError

FOLDER = "out/imports"
"""Of the workspace."""
_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def keep(files: Sequence[tuple[str, bytes]]) -> Path:
    """The folder that holds these files, `(name, content)` each, and no others.

    Raises:
        InputError: one is empty, two have the same name, or nothing can be written.
    """
    digest, named = hashlib.sha256(), {}
    for name, content in sorted(files):
        safe = _NAME.sub("-", Path(name).name).lstrip("-.")[-80:] or "file"
        if not content:
            raise InputError(f"{name}: the file is empty")
        if safe in named:
            raise InputError(f"{name}: there are two files of that name")
        named[safe] = content
        digest.update(f"{safe}\0{len(content)}\0".encode() + content)
    folder = workspace.inside(f"{FOLDER}/{digest.hexdigest()[:16]}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in named.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
    return folder
