"""Starts the dashboard's server: `python -m dashboard.server PORT [OPTION ...]`, with what its first reader needs already loaded."""

from __future__ import annotations

import sys
import threading
from importlib import util

from dashboard import theme
from dashboard.contents import PAGES, module

OPTIONS = (
    "--server.address=localhost",
    "--server.fileWatcherType=none",
    "--browser.gatherUsageStats=false",
    "--client.toolbarMode=minimal",
    "--client.showErrorDetails=none",
)
"""Nothing leaves this machine, nothing of the server's own development is on offer."""


def main(port: str, *more: str) -> None:
    from streamlit.web import cli

    found = util.find_spec("app")
    assert found is not None
    assert found.origin is not None
    threading.Thread(target=_warm, daemon=True).start()
    sys.argv = ["streamlit", "run", found.origin, f"--server.port={port}", *OPTIONS, *theme.options(), *more]
    cli.main()


def _warm() -> None:
    """Loads the pages and starts processes while nobody waits for them yet."""
    from dashboard import parts

    parts.jobs()
    for name, *_ in PAGES:
        module(name)


if __name__ == "__main__":
    main(*sys.argv[1:])
