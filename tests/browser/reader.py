"""Somebody who reads the dashboard in a browser tab, and everything that goes wrong in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import ConsoleMessage, Locator, Page, Request, Response

PATIENCE = 120_000
"""Milliseconds that a crowded machine may take for anything. Nothing waits so long where it succeeds."""

IDLE = """() => {
  const app = document.querySelector('[data-testid=stApp]')
  return app?.dataset.testScriptState === 'notRunning' && app.dataset.testConnectionState === 'CONNECTED'
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')
    && [...document.querySelectorAll('[data-testid=stPlotlyChart]')]
      .every(box => !box.checkVisibility() || box.querySelector('.js-plotly-plot')?._fullLayout)
}"""

FIGURES = """() => {
  const plain = value =>
    ArrayBuffer.isView(value) ? Array.from(value, plain)
    : Array.isArray(value) ? value.map(plain)
    : typeof value === 'number' && !Number.isFinite(value) ? String(value)
    : value !== null && typeof value === 'object'
      ? Object.fromEntries(Object.entries(value).filter(([name]) => !name.startsWith('_')).map(([k, v]) => [k, plain(v)]))
    : value
  return [...document.querySelectorAll('[data-testid=stPlotlyChart]')]
    .filter(box => box.checkVisibility() && box.querySelector('.js-plotly-plot')?._fullLayout)
    .map(box => {
      const plot = box.querySelector('.js-plotly-plot')
      const axes = Object.entries(plot._fullLayout).filter(([name]) => /^[xy]axis\\d*$/.test(name))
      return {
        alt: box.getAttribute('aria-label') ?? '',
        role: box.getAttribute('role'),
        data: plot.data.map(plain),
        ground: plot._fullLayout.paper_bgcolor,
        ink: plot._fullLayout.font.color,
        axes: axes.filter(([, axis]) => axis.visible && axis.title?.text).map(([, axis]) => axis.title.text),
        marks: plot.querySelectorAll('.point, .js-line, .slice, .bars path, .heatmaplayer image, .parcoords, .js-fill, .table').length
          + plot.querySelectorAll('canvas').length,
      }
    })
}"""


@dataclass(frozen=True)
class Figure:
    """What Plotly has drawn. data: its traces. ground, ink: colours of the paper and of its writing. axes: their titles.
    marks: how many lines, points, bars there are to see."""

    alt: str
    role: str | None
    data: list[dict[str, Any]]
    ground: str
    ink: str
    axes: list[str]
    marks: int

    def curve(self, name: str) -> dict[str, Any]:
        """The trace of that name."""
        return next(trace for trace in self.data if trace.get("name") == name)


@dataclass
class Reader:
    """page: the tab. url: of the server. complaints: errors in the console, requests that failed, requests to other machines."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.set_default_navigation_timeout(PATIENCE)
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.on("request", self._asked)
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)
        self.page.on("websocket", lambda socket: self._elsewhere(socket.url))

    def open(self, page: str = "", **query: str) -> Reader:
        """Opens a page with query parameters (a path within the scenario: two underscores for a dot) and waits until it stands."""
        return self.begin(page, **query).settled()

    def begin(self, page: str = "", **query: str) -> Reader:
        """Opens a page and waits for nothing but its heading."""
        asked = urlencode({name.replace("__", "."): text for name, text in query.items()})
        self.page.goto(f"{self.url}{page}?{asked}" if asked else f"{self.url}{page}")
        self.page.locator("h1").first.wait_for()
        return self

    def follow(self, link: str) -> Reader:
        """Opens a link and waits until the page stands."""
        self.page.goto(link)
        return self.settled()

    def settled(self) -> Reader:
        """Waits until a heading is there, the script has come to its end, and whatever it sent is drawn."""
        self.page.locator("h1").first.wait_for()
        self.page.wait_for_function(IDLE)
        return self

    def query(self) -> dict[str, str]:
        """The query parameters of the link."""
        return dict(parse_qsl(urlsplit(self.page.url).query, keep_blank_values=True))

    def query_becomes(self, **wanted: str | None) -> None:
        """Waits until parameters of the link are as wanted; None: absent."""
        for name, text in wanted.items():
            self.page.wait_for_function(
                "([name, text]) => new URLSearchParams(location.search).get(name) === text",
                arg=[name.replace("__", "."), text],
            )

    def figures(self) -> list[Figure]:
        """All figures that are to be seen, in the order of the page."""
        return [Figure(**found) for found in self.page.evaluate(FIGURES)]

    def figure(self, about: str) -> Figure:
        """The figure whose alternative text begins so, once it is drawn."""
        self.drawn(about)
        return next(found for found in self.figures() if found.alt.startswith(about))

    def drawn(self, about: str) -> None:
        self.page.wait_for_function(
            f"about => ({FIGURES})().some(figure => figure.alt.startsWith(about) && figure.marks > 0)", arg=about
        )

    def redrawn(self, before: Figure, about: str) -> Figure:
        """The figure whose alternative text begins so, once other data are drawn in it."""
        self.page.wait_for_function(
            f"""([about, before]) => ({FIGURES})().some(
              figure => figure.alt.startsWith(about) && JSON.stringify(figure.data) !== before)""",
            arg=[about, self.page.evaluate("data => JSON.stringify(data)", before.data)],
        )
        self.settled()
        return self.figure(about)

    def cards(self) -> dict[str, str]:
        """Values by label of the cards."""
        found = self.page.get_by_test_id("stMetric").all()
        return {
            card.get_by_test_id("stMetricLabel").inner_text(): card.get_by_test_id("stMetricValue").inner_text()
            for card in found
        }

    def slider(self, label: str) -> Locator:
        """The handle of the slider of that label."""
        box = self.page.locator("[data-testid=stSlider], [data-testid=stSelectSlider]")
        return box.filter(has=self.page.get_by_text(label, exact=True)).get_by_role("slider")

    def section(self, title: str) -> Locator:
        """A foldable part of the page, opened. title: what it begins with."""
        found = self.page.get_by_test_id("stExpander").filter(has=self.page.locator("summary").filter(has_text=title))
        if found.locator("details").get_attribute("open") is None:
            found.locator("summary").click()
        return found

    def alerts(self) -> list[str]:
        """What errors, warnings and notes say."""
        return [found.inner_text() for found in self.page.get_by_test_id("stAlert").all()]

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not self._probes(message.location.get("url", "")):
            self.complaints.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        self._elsewhere(request.url)

    def _elsewhere(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"asked another machine: {url}")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the tab went elsewhere meanwhile
            self.complaints.append(f"failed: {request.url} ({request.failure})")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and not self._probes(response.url):
            self.complaints.append(f"{response.status}: {response.url}")

    def _probes(self, url: str) -> bool:
        """Streamlit's script in a page other than the first looks for the server below the page before it looks beside it."""
        return re.fullmatch(r"\w+/_stcore/(health|host-config)", url.removeprefix(self.url)) is not None
