"""Every page, in every look: it loads without an error, asks no other machine, fits, and can be read and used by everybody."""

from __future__ import annotations

import pytest

PAGES = ("", "compare", "capacity", "calibrate", "validate", "studies", "glossary")
"""By address; Explore is the first."""
SMALL = {"workload__requests": "100"}


def colours(text: str) -> tuple[int, int, int]:
    """Red, green and blue of `#rrggbb`, `rgb(r, g, b)` or `rgba(r, g, b, a)`."""
    if text.startswith("#"):
        red, green, blue = (int(text[i : i + 2], 16) for i in (1, 3, 5))
        return red, green, blue
    red, green, blue = (int(float(part)) for part in text[text.index("(") + 1 : -1].split(",")[:3])
    return red, green, blue


@pytest.mark.parametrize("page", PAGES)
def test_the_page_loads(reader, page):
    reader.open(page, **SMALL)
    assert reader.page.locator("h1").first.inner_text().strip()
    assert reader.page.get_by_test_id("stException").count() == 0
    assert [note for note in reader.alerts() if "defect" in note] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_page_fits_a_telephone(readers, page):
    reader = readers(width=390).open(page, **SMALL)
    wide = reader.page.evaluate(
        """() => [document.documentElement, ...document.querySelectorAll('[data-testid=stMain]')]
          .map(part => part.scrollWidth - part.clientWidth)"""
    )
    assert max(wide) <= 0
    for figure in reader.page.get_by_test_id("stPlotlyChart").all():
        box = figure.bounding_box()
        assert box is None or box["x"] + box["width"] <= 390


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_says_in_words_what_it_shows_and_has_units(reader, page):
    for figure in reader.open(page, **SMALL).figures():
        assert figure.role in ("figure", "img")
        assert len(figure.alt) > 40, figure.alt
        assert figure.alt not in figure.axes


def test_in_dark_mode_figures_are_dark(readers):
    reader = readers(dark=True).open(**SMALL)
    reader.drawn("Cumulative distribution of time to first token")
    page = reader.page.evaluate("() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    for figure in reader.figures():
        assert max(colours(figure.ground)) < 64
        assert min(colours(figure.ink)) > 160
        assert colours(figure.ground) == colours(page)
