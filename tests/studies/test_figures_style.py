"""Colours of figures: seen on both pages, and told apart whatever colours one sees."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from studies.figures import style, themes

LIGHT = style.PALETTE
ON_DARK = tuple(themes.DARK.get(color, color) for color in LIGHT)
SEEN_BY = {  # in linear RGB; Machado, Oliveira and Fernandes 2009, severity 1
    "everybody": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
APART = 14.0
"""CIE76; about 2 is just noticed side by side."""


def linear(color: str) -> np.ndarray:
    c = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2.2, from 1 to 21."""
    low, high = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) + 0.05 for color in (a, b))
    return high / low


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = (float(np.cbrt(v)) if v > 0.008856 else 7.787 * v + 16 / 116 for v in XYZ @ np.clip(rgb, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(a: str, b: str, seen: np.ndarray) -> float:
    return float(np.linalg.norm(lab(seen @ linear(a)) - lab(seen @ linear(b))))


def test_black_on_white_has_the_most_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("color", [*ON_DARK, themes.DARK[style.GREY], themes.DARK[style.EDGE]])
def test_lines_are_seen_on_a_dark_page(color: str) -> None:
    assert contrast(color, themes.DARK_PAPER) >= 3


@pytest.mark.parametrize("color", [style.BLUE, style.RED, style.GREEN, style.PINK, style.GREY])
def test_lines_are_seen_on_a_light_page(color: str) -> None:
    assert contrast(color, style.PAPER) >= 3


@pytest.mark.parametrize("color", style.SHADES[:-1])
def test_thin_lines_of_a_scale_are_seen_on_a_light_page(color: str) -> None:
    assert contrast(color, style.PAPER) >= 3


@pytest.mark.parametrize("color", themes.DARK_SHADES)
def test_thin_lines_of_a_scale_are_seen_on_a_dark_page(color: str) -> None:
    assert contrast(color, themes.DARK_PAPER) >= 3


def test_words_are_read_on_both_pages() -> None:
    for ink, paper in ((style.INK, style.PAPER), (themes.DARK_INK, themes.DARK_PAPER)):
        assert contrast(ink, paper) >= 7
    assert contrast(style.GREY, style.PAPER) >= 4.5
    assert contrast(themes.DARK[style.GREY], themes.DARK_PAPER) >= 4.5


@pytest.mark.parametrize("who", SEEN_BY)
@pytest.mark.parametrize("palette", [LIGHT, ON_DARK], ids=["light", "dark"])
def test_colours_are_told_apart(palette: tuple[str, ...], who: str) -> None:
    for a, b in combinations(palette, 2):
        assert distance(a, b, SEEN_BY[who]) >= APART, (a, b)


def test_bands_take_the_colour_of_their_line_on_both_pages() -> None:
    band = {"data": [{"fillcolor": style.faint(style.BLUE)}], "layout": style.layout()}
    assert band["data"][0]["fillcolor"] == "rgba(0,114,178,0.16)"
    assert themes.themed(band, True)["data"][0]["fillcolor"] == style.faint(themes.DARK[style.BLUE])


def test_an_axis_is_logarithmic_from_a_ratio_of_twenty_on() -> None:
    assert style.far_apart([1, 20.1])
    assert not style.far_apart([1, 20])
    assert not style.far_apart([0, 20.1])
    assert not style.far_apart([])
