"""How long somebody waits for the dashboard, by the browser's own clock, and what each process computes meanwhile.

From the navigation, or from the key, until the first figure is drawn anew (`plotly_afterplot`), and until the last one is. Between
them stand when the server began (its first message), when cards and figures came over the wire and when the script had ended. On a busy
machine only what was computed means something.
"""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil

from tests.browser import chromium
from tests.browser.reader import Reader
from tests.browser.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

QUERY = {
    "scenario": "azure-conversation",
    "workload__requests": "6000",
    "workload__arrivals__rate": "10",
    "cost__profile": "auto",
}
"""Ten minutes of ten requests a second."""
KNOB = "Requests a second"

TRACE = """() => {
  const seen = window.seen = {keys: [], messages: [], drawn: [], sent: []}
  const now = () => performance.now()
  addEventListener('keydown', () => seen.keys.push(now()), true)
  const Socket = window.WebSocket
  window.WebSocket = class extends Socket {
    constructor(...given) {
      super(...given)
      super.addEventListener('message', event => seen.messages.push([now(), event.data]))
    }
    send(data) { seen.sent.push(now()); super.send(data) }
  }
  const watched = new WeakSet()
  new MutationObserver(() => {
    for (const plot of document.querySelectorAll('.js-plotly-plot'))
      if (plot.on && !watched.has(plot)) {
        watched.add(plot)
        plot.on('plotly_afterplot', () => seen.drawn.push(now()))
      }
  }).observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ['class']})
}"""
FORGET = "() => { for (const list of Object.values(window.seen)) list.length = 0 }"
COLLECT = """async () => {
  const text = data => new Promise(done => {
    const reader = new FileReader()
    reader.onload = () => done(reader.result.split(',')[1] ?? '')
    reader.readAsDataURL(data instanceof Blob ? data : new Blob([data]))
  })
  const messages = []
  for (const [at, data] of window.seen.messages) messages.push([at, await text(data)])
  return {...window.seen, messages}
}"""


def measured(found: Server, browser: Browser, repeats: int) -> dict[str, dict[str, float]]:
    """Medians over the repeats by what was done and row: seconds, but for the rows in brackets."""
    first = [_first_page(found, browser) for _ in range(repeats)]
    context = chromium.context(browser)
    turns = [_knob(_traced(context.new_page(), found), found, seed) for seed in range(repeats)]
    context.close()
    return {"first page": _medians(first), "a knob turned": _medians(turns)}


def lines(times: dict[str, dict[str, float]]) -> list[str]:
    """The medians as a table in text."""
    told = [f"{'seconds, median':32}" + "".join(f"{name:>16}" for name in times)]
    for row in dict.fromkeys(name for column in times.values() for name in column):
        told.append(f"{row:32}" + "".join(f"{column[row]:16.2f}" for column in times.values()))
    return told


def _first_page(found: Server, browser: Browser) -> dict[str, float]:
    """In a browser that has not been here before."""
    context = chromium.context(browser)
    reader = _traced(context.new_page(), found)
    times = _timed(reader, found, lambda: reader.page.goto(found.url, wait_until="commit"))
    context.close()
    return times


def _knob(reader: Reader, found: Server, seed: int) -> dict[str, float]:
    """With a seed that nobody had before: nothing is known of what the knob asks for."""
    reader.open(**QUERY, seed=str(seed + 1))
    reader.page.wait_for_function("() => window.seen.drawn.length > 0")
    _still(reader)
    knob = reader.slider(KNOB)
    times = _timed(reader, found, lambda: knob.press("ArrowLeft"))
    reader.page.close()
    return times


def _traced(page: Any, found: Server) -> Reader:
    page.add_init_script(f"({TRACE})()")
    return Reader(page, found.url)


def _timed(reader: Reader, found: Server, act: Callable[[], object]) -> dict[str, float]:
    if reader.page.url.startswith("http"):
        reader.page.evaluate(FORGET)
    before = _computed(found)
    act()
    reader.page.wait_for_function("() => window.seen?.drawn.length > 0")
    _still(reader)
    after = _computed(found)
    seen = reader.page.evaluate(COLLECT)
    return _milestones(seen) | {f"computed: {who}": after[who] - before.get(who, 0.0) for who in after}


def _still(reader: Reader) -> None:
    """Waits until nothing was drawn or sent for a second."""
    reader.settled()
    reader.page.wait_for_function(
        "() => performance.now() - Math.max(0, ...window.seen.drawn, ...window.seen.messages.map(m => m[0])) > 1000"
    )


def _milestones(seen: dict[str, Any]) -> dict[str, float]:
    """Seconds since the key, or since the navigation began."""
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

    began = seen["keys"][0] if seen["keys"] else 0.0
    messages = [(at, ForwardMsg.FromString(base64.b64decode(text))) for at, text in seen["messages"]]
    elements = [(at, m.delta.new_element.WhichOneof("type"), m.ByteSize()) for at, m in messages]
    figures = [(at, size) for at, kind, size in elements if kind == "plotly_chart"]
    kinds = {
        kind: [at for at, m in messages if m.WhichOneof("type") == kind] for kind in ("new_session", "script_finished")
    }
    passed = {
        "asked the server": seen["sent"][0],
        "the server's script began": min(kinds["new_session"]),
        "cards here": min(at for at, kind, _ in elements if kind == "metric"),
        "first figure here": figures[0][0],
        "first figure drawn": min(at for at in seen["drawn"] if at >= figures[0][0]),
        "last figure here": figures[-1][0],
        "the server's script ended": kinds["script_finished"][-1],
        "last figure drawn": max(seen["drawn"]),
    }
    found = {name: (at - began) / 1e3 for name, at in passed.items()}
    return found | {"(figures sent)": float(len(figures)), "(kB of figures)": sum(size for _, size in figures) / 1e3}


def _computed(found: Server) -> dict[str, float]:
    """Processor seconds so far: of the server, its workers, and the browser's pages and the rest of it."""
    seconds = {"server": _seconds(found.process), "workers": sum(_seconds(worker) for worker in found.workers())}
    pages = rest = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if not any("chrom" in part for part in command[:1]):
            continue
        if "--type=renderer" in command:
            pages += _seconds(process)
        else:
            rest += _seconds(process)
    return seconds | {"pages of the browser": pages, "rest of the browser": rest}


def _seconds(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system)


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}
