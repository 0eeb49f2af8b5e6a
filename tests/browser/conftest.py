"""The dashboard in a real browser. Without one these tests are skipped, and say what to install."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.browser.reader import Reader
    from tests.browser.server import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(__file__).removesuffix("conftest.py")
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.usefixtures("browser"))


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Ends with this package's tests: Playwright's event loop must not be there while others want their own."""
    if (why := chromium.lacking()) is not None:
        pytest.skip(f"{why} (needed for the tests of the dashboard in a browser)")
    with chromium.browser() as found:
        yield found


@pytest.fixture(scope="package")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A dashboard on an empty workspace."""
    from tests.browser.server import start

    found = start(tmp_path_factory.mktemp("workspace"))
    yield found
    found.stop()


@pytest.fixture(scope="package")
def contexts(browser: Browser) -> Iterator[Callable[[int, bool], BrowserContext]]:
    """Browser contexts by width and whether dark is preferred, kept: each compiles the dashboard's scripts anew."""
    made: dict[tuple[int, bool], BrowserContext] = {}

    def call(width: int, dark: bool) -> BrowserContext:
        if (width, dark) not in made:
            made[width, dark] = chromium.context(browser, width, dark)
        return made[width, dark]

    yield call
    for context in made.values():
        context.close()


@pytest.fixture
def readers(
    browser: Browser, server: Server, contexts: Callable[[int, bool], BrowserContext]
) -> Iterator[Callable[..., Reader]]:
    """Makes readers, each in a tab. A test fails if anything went wrong in any of them."""
    from tests.browser.reader import Reader

    made: list[Reader] = []
    own: list[BrowserContext] = []

    def call(url: str = server.url, width: int = 1280, dark: bool = False, stranger: bool = False) -> Reader:
        """stranger: in a browser that has not been here before; others share one, as tabs do."""
        if stranger:
            own.append(chromium.context(browser, width, dark))
        context = own[-1] if stranger else contexts(width, dark)
        made.append(Reader(context.new_page(), url))
        return made[-1]

    yield call
    for reader in made:
        reader.page.close()
    for context in own:
        context.close()
    complaints = [complaint for reader in made for complaint in reader.complaints]
    assert not complaints, complaints


@pytest.fixture
def reader(readers: Callable[..., Reader]) -> Reader:
    """A reader at 1280 pixels, light."""
    return readers()
