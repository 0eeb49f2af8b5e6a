"""The browser of the tests: the system's Chromium, driven by Playwright. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VARIABLE = "CHROMIUM"
"""Of the environment: the path of another Chromium."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def path() -> str | None:
    return os.environ.get(VARIABLE) or next((found for name in NAMES if (found := shutil.which(name))), None)


def lacking() -> str | None:
    """Why no browser can be driven here, and what to install; None if one can."""
    if util.find_spec("playwright") is None:
        return "playwright is not installed: pip install 'servetwin[test]'"
    if path() is None:
        return f"there is no Chromium: apt-get install chromium, or name one in ${VARIABLE}"
    return None


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which goes with it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path(), headless=True, args=list(FLAGS))
        try:
            yield found
        finally:
            found.close()


def context(found: Browser, width: int = 1280, dark: bool = False) -> BrowserContext:
    """Somebody's browser: cache, storage and settings of its own. width: pixels; below 600 as high as a telephone."""
    return found.new_context(
        viewport={"width": width, "height": 900 if width > 600 else 844},
        color_scheme="dark" if dark else "light",
        accept_downloads=True,
        reduced_motion="reduce",
    )
