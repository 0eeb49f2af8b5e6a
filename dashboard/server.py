"""Starts the dashboard's server: `python -m dashboard.server PORT [--open]`, with what its first reader needs already loaded."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import threading
import webbrowser
from importlib import resources, util
from pathlib import Path

from dashboard.assets import Assets
from dashboard.contents import PAGES, module

HOST = "localhost"
OPTIONS = {
    "server.address": HOST,
    "server.headless": True,
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    "theme.base": str(resources.files("dashboard") / "theme.toml"),
}
"""Of Streamlit. Nothing leaves this machine, nothing of the server's own development is on offer."""
GRACE = 5
"""Seconds that open connections have at the end."""


def main(port: int, show: bool) -> None:
    """Serves until it is ended. show: opens a browser on it.

    Streamlit's own start binds a socket on which asyncio does not switch off Nagle's algorithm: 40 ms for every small answer. Hence
    uvicorn is started here.
    """
    import streamlit as st
    import uvicorn
    from starlette.middleware import Middleware
    from streamlit.file_util import get_static_dir
    from streamlit.web import bootstrap

    found = util.find_spec("app")
    assert found is not None
    assert found.origin is not None
    bootstrap.load_config_options({"server.port": port, **OPTIONS})
    threading.Thread(target=_warm, daemon=True).start()
    app = st.App(found.origin, middleware=[Middleware(Assets, folder=Path(get_static_dir()))])
    config = uvicorn.Config(
        app,
        host=HOST,
        port=port,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        log_level="warning",
        timeout_graceful_shutdown=GRACE,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Says where the dashboard is, once it is there."""
            await super().startup(sockets)
            if self.started:
                url = f"http://{HOST}:{port}"
                print(f"The dashboard is at {url}. Ctrl-C ends it.", flush=True)
                if show:
                    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    server = Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(1)


def _warm() -> None:
    """Loads the pages and starts processes while nobody waits for them yet."""
    from dashboard import parts

    parts.jobs()
    for name, *_ in PAGES:
        module(name)
    gc.collect()
    gc.freeze()  # Streamlit collects garbage after every run of a page: a tenth of a second over what never goes


if __name__ == "__main__":
    main(int(sys.argv[1]), "--open" in sys.argv[2:])
