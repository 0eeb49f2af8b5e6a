"""YAML files that come with the program, found by name beside the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from scenarios import documents
from scenarios.errors import InputError, nearest, unknown


class Found(NamedTuple):
    """A file's text, what messages call it, and the folder that it stands in: none of a shipped one."""

    text: str
    source: str
    folder: Path | None


@dataclass(frozen=True)
class Shipped:
    """The YAML files of a package.

    kind: what messages call one of them.
    """

    package: ModuleType
    kind: str

    def names(self) -> tuple[str, ...]:
        """Names of all."""
        files = resources.files(self.package).iterdir()
        return tuple(sorted(f.name[:-5] for f in files if f.name.endswith(".yaml")))

    def text(self, name: str) -> str:
        """The file of one of them.

        Raises:
            InputError: no such name.
        """
        if name not in self.names():
            raise InputError(unknown(self.kind, name, self.names()))
        return resources.files(self.package).joinpath(f"{name}.yaml").read_text(encoding="utf-8")

    def find(self, given: str | Path) -> Found:
        """A file of the user's, or the shipped one of that name.

        Raises:
            InputError: there is neither, or the file cannot be read.
        """
        file, names = Path(given), self.names()
        if str(given) in names and not file.is_file():
            return Found(self.text(str(given)), f"{given}.yaml", None)
        if file.is_dir():
            raise InputError(f"{file}: is a folder, but a YAML file is needed")
        if not file.exists() and not file.suffix:
            close = nearest(str(given), names)
            hint = f"; did you mean {close!r}?" if close else "."
            raise InputError(f"{file}: there is no such file or shipped {self.kind}{hint} Shipped: {', '.join(names)}")
        return Found(documents.read_text(file), str(file), file.parent)
