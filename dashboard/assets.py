"""Streamlit's own scripts, fonts and styles, served from memory: each is read once, when it is asked for first.

A page needs some hundred small files. Streamlit looks each up on disk, in a thread, behind all that its other answers pass through:
10 ms a file, one after the other, most of a second before the page begins.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

CACHED = "public, immutable, max-age=31536000"
"""A name holds a hash of what is in the file."""


class Assets:
    """Answers for the files below `static/` of a folder; everything else goes on to the application.

    app: the application. folder: with `index.html` in it.
    """

    def __init__(self, app: ASGIApp, folder: Path) -> None:
        self._app = app
        found = (path for path in (folder / "static").rglob("*") if path.is_file())
        self._files = {f"/{path.relative_to(folder).as_posix()}": path for path in found}
        self._answers: dict[str, Response] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["method"] == "GET"
        answer = self._answer(scope["path"]) if asked else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, path: str) -> Response | None:
        if path not in self._answers and path in self._files:
            kind, _ = mimetypes.guess_type(path)
            self._answers[path] = Response(
                self._files[path].read_bytes(), media_type=kind, headers={"Cache-Control": CACHED}
            )
        return self._answers.get(path)
