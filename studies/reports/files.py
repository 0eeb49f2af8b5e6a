"""Writing of files: a place is checked before the work, and a file is whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from scenarios.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_NAME = 200  # file systems allow 255 bytes, and files and folders are written under a longer name first


def check_folder(
    folder: Path, what: str = "--out", is_part: Callable[[str], bool] | None = None, *, replaced: bool = False
) -> None:
    """Raises InputError if nothing can be written to a folder, or would mingle with something else: better told before the work.

    what: it will hold, for the message (`a sweep`). is_part: whether a file of that name belongs to it; anything may be there by
    default. replaced: as a whole, so that room is needed beside it.
    """
    _check_name(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: a file, but {what} is a folder")
    _check_room(folder, folder if folder.is_dir() and not replaced else _above(folder))
    if is_part is None or not folder.is_dir():
        return
    others = sorted(path.name for path in folder.iterdir() if not is_part(path.name))
    if others:
        raise InputError(f"--out {folder}: holds {others[0]}, which is no part of {what}; give a new folder")


def check_file(file: Path, what: str) -> None:
    """Raises InputError if no file can be written there. what: it holds, for the message (`a profile is a file`)."""
    _check_name(file)
    if file.is_dir():
        raise InputError(f"--out {file}: a folder, but {what}")
    _check_room(file, _above(file))


def _check_name(path: Path) -> None:
    if len(path.name.encode()) > LONGEST_NAME:
        raise InputError(f"--out {path}: this name is too long for a file")


def _above(path: Path) -> Path:
    """What there is already of the folders above."""
    return next(parent for parent in path.absolute().parents if parent.exists())


def _check_room(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"--out {path}: {folder} is a file, not a folder")
    try:
        os.rmdir(tempfile.mkdtemp(dir=folder))
    except OSError as error:
        raise InputError(f"--out {path}: {folder} cannot be written to ({error.strerror})") from None


@contextlib.contextmanager
def whole(file: Path) -> Iterator[Path]:
    """A name to write under; the file gets its own name when that is done. Where it fails, what was there before stays."""
    part = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        yield part
        os.replace(part, file)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def write(folder: Path, contents: Mapping[str, str | pa.Table]) -> None:
    """Writes files by name into a folder, which is made if need be; other files in it stay. Tables are Parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        with whole(folder / name) as part:
            if isinstance(content, str):
                part.write_text(content, encoding="utf-8", errors="replace")
            else:
                import pyarrow.parquet as pq

                pq.write_table(content, part, compression="zstd")
