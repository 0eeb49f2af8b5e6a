"""The pictures of docs/dashboard.md: every page as it is. With $SCREENSHOTS=FOLDER they are written there (`make screenshots`)."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

VARIABLE = "SCREENSHOTS"
LARGEST = 200_000
"""Bytes of one picture."""
TALLEST = 1500
"""Pixels."""
SCENARIO = {"scenario": "azure-conversation", "workload__requests": "2000"}

VIEWS = {
    "explore": ("", SCENARIO | {"workload__arrivals__rate": "15"}, 1280, False),
    "explore-dark": ("", SCENARIO | {"workload__arrivals__rate": "15"}, 1280, True),
    "explore-390": ("", SCENARIO | {"workload__arrivals__rate": "15"}, 390, False),
    "compare": ("compare", {"workload__requests": "400", "workload__arrivals__rate": "5"}, 1280, False),
    "capacity": ("capacity", {"workload__requests": "300"}, 1280, False),
    "calibrate": ("calibrate", {}, 1280, False),
    "validate": ("validate", {}, 1280, False),
    "studies": ("studies", {}, 1280, False),
    "glossary": ("glossary", {}, 1280, False),
}
"""Page, query, width and whether it is dark, by the picture's name."""

HEIGHT = """() => Math.max(...[...document.querySelectorAll('[data-testid=stMainBlockContainer]')].map(
  part => part.getBoundingClientRect().height))"""


@pytest.mark.parametrize("name", VIEWS)
def test_a_picture_of_the_page_can_be_taken(readers, name):
    page, query, width, dark = VIEWS[name]
    reader = readers(width=width, dark=dark).open(page, **query)
    reader.page.get_by_role("button", name="Cancel").wait_for(state="detached")
    for figure in reader.settled().figures():
        assert figure.marks > 0, figure.alt
    height = min(int(reader.page.evaluate(HEIGHT)) + 20, TALLEST)
    reader.page.set_viewport_size({"width": width, "height": max(height, 844)})
    reader.settled()
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
