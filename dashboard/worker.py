"""A process that does work for the dashboard, one piece after another: `python -m dashboard.worker`.

It reads (function, arguments) from its standard input and writes (kind, content) to its standard output, both pickled:
`ready` once, then any number of `progress` and `partial`, and one `result`, `refused` or `failed` a piece.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
import traceback
from typing import Any, BinaryIO

from scenarios.errors import InputError


class Tell:
    """What a function gets first: it tells how far it is, and what there is to show already."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def __call__(self, what: str, share: float) -> None:
        """share: 0 to 1."""
        self.send("progress", (what, share))

    def partial(self, found: Any) -> None:
        """Something of the kind of the result."""
        self.send("partial", found)

    def send(self, kind: str, content: Any) -> None:
        self._out.write(pickle.dumps((kind, content), pickle.HIGHEST_PROTOCOL))  # all of it, or nothing
        self._out.flush()


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not come among the answers
    from studies import workers

    threading.Thread(target=workers.end_with, args=(os.getppid(),), daemon=True).start()
    import dashboard.explore.work  # noqa: F401 - imported now, so that the first piece of work does not wait for it

    gc.collect()
    gc.freeze()  # what was imported stays; nobody need look through it again
    tell = Tell(out)
    tell.send("ready", None)
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            tell.send("result", function(tell, *arguments))
        except InputError as error:
            tell.send("refused", str(error))
        except MemoryError:
            tell.send("refused", "there is too little memory for this; ask for fewer requests")
        except Exception:
            tell.send("failed", traceback.format_exc())


if __name__ == "__main__":
    main()
