"""The pictures of docs/dashboard.md: every page as it is. With $SCREENSHOTS=FOLDER they are written there (`make screenshots`)."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cli

VARIABLE = "SCREENSHOTS"
LARGEST = 200_000
"""Bytes of one picture."""
TALLEST = 1500
"""Pixels."""
SCENARIO = {"scenario": "azure-conversation", "workload__requests": "2000"}

STUDY = "which-batch"
SWEEP = """
base: demo
question: How many requests at once suit which load?
axes: {workload.arrivals.rate: [1, 2, 4, 6], engine.max_num_seqs: [2, 8, 32, 128]}
seeds: 2
"""
VIEWS = {
    "explore": ("", SCENARIO | {"workload__arrivals__rate": "15"}, 1280, False),
    "explore-dark": ("", SCENARIO | {"workload__arrivals__rate": "15"}, 1280, True),
    "explore-390": ("", SCENARIO | {"workload__arrivals__rate": "15"}, 390, False),
    "compare": ("compare", {"workload__requests": "400", "workload__arrivals__rate": "5"}, 1280, False),
    "capacity": ("capacity", {"workload__requests": "300"}, 1280, False),
    "calibrate": ("calibrate", {}, 1280, False),
    "validate": ("validate", {"validation": "vllm-cpu-qwen3-tiny"}, 1280, False),
    "studies": ("studies", {"folder": STUDY}, 1280, False),
    "glossary": ("glossary", {}, 1280, False),
}
"""Page, query, width and whether it is dark, by the picture's name."""

HIDDEN = """folder => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replaceAll(folder, '~/workspace')
}"""
HEIGHT = """() => Math.max(...[...document.querySelectorAll('[data-testid=stMainBlockContainer]')].map(
  part => part.getBoundingClientRect().height))"""


@pytest.fixture
def study(server):
    """A sweep in the server's workspace, for as long as its picture is taken."""
    folder = server.workspace / STUDY
    file = folder.with_suffix(".yaml")
    file.write_text(SWEEP, encoding="utf-8")
    command = [sys.executable, "-m", "cli", "sweep", str(file), "--out", str(folder), "--set", "workload.requests=200"]
    subprocess.run(
        command, check=True, cwd=Path(cli.__file__).parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield
    file.unlink()
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", VIEWS)
def test_a_picture_of_the_page_can_be_taken(request, readers, server, name):
    if name == "studies":
        request.getfixturevalue("study")
    page, query, width, dark = VIEWS[name]
    reader = readers(width=width, dark=dark).open(page, **query)
    reader.page.get_by_role("button", name="Cancel").wait_for(state="detached")
    for figure in reader.settled().figures():
        assert figure.marks > 0, figure.alt
    height = min(int(reader.page.evaluate(HEIGHT)) + 20, TALLEST)
    reader.page.set_viewport_size({"width": width, "height": max(height, 844)})
    reader.settled()
    reader.page.evaluate(HIDDEN, str(server.workspace))
    taken = smaller(reader.page.screenshot(animations="disabled", caret="hide"))
    assert 3_000 < len(taken) < LARGEST
    if folder := os.environ.get(VARIABLE):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(taken)


def smaller(picture: bytes) -> bytes:
    """The PNG in 128 colours."""
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install 'servetwin[test]'")
    found = image.open(io.BytesIO(picture)).convert("RGB").quantize(128, dither=image.Dither.NONE)
    out = io.BytesIO()
    found.save(out, "PNG", optimize=True)
    return out.getvalue()
