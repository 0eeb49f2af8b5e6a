"""How far a search is, of which each step has steps of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.progress import Progress


class Told:
    """Hears of steps (`what`, part of the whole), and of details within the last of them, and tells both together."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._what, self._share = progress, "", 0.0

    def __call__(self, what: str, share: float) -> None:
        self._what, self._share = what, share
        if self._progress is not None:
            self._progress(what, share)

    def detail(self, text: str) -> None:
        """What is being done within the last step."""
        if self._progress is not None:
            self._progress(f"{self._what}: {text}" if self._what else text, self._share)
