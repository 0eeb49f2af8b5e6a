"""What holds of every figure: it is Plotly's, has units, says in words what it shows, and is read on a dark page too."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import pytest

from studies.figures import described, themed
from studies.figures.style import Figure
from studies.figures.themes import DARK, DARK_PAPER
from tests.studies.every_figure import every_figure

WITHOUT_AXES = ("parallel",)
WITHOUT_UNITS = (
    "rate",
    "max_num_seqs",
    "replicas",
    "Request",
    "Tokens",
    "KV blocks",
    "Preempted",
    "Worlds",
    "USD",
    "Requests",
)


@pytest.fixture(scope="module")
def every() -> dict[str, Figure]:
    return every_figure()


def colors(part: Any, key: str = "") -> Iterator[str]:
    """Every colour that a figure names."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from colors(value, name)
    elif isinstance(part, list):
        for value in part:
            yield from colors(value, key)
    elif isinstance(part, str) and key.lower().endswith("color"):
        yield part


def test_plotly_takes_them_light_and_dark(every: dict[str, Figure]) -> None:
    for figure in every.values():
        go.Figure(figure)
        go.Figure(themed(figure, True))


def test_every_axis_has_a_name_and_a_unit(every: dict[str, Figure]) -> None:
    for name, figure in every.items():
        titles = [part["title"]["text"] for key, part in figure["layout"].items() if key[1:5] == "axis"]
        assert titles or name in WITHOUT_AXES, name
        for title in filter(None, titles):
            assert re.search(r"\(.*\)|%", title) or title.startswith(WITHOUT_UNITS), f"{name}: {title}"


def test_every_figure_says_what_it_shows(every: dict[str, Figure]) -> None:
    for name, figure in every.items():
        text = described(figure)
        assert text == figure["layout"]["meta"]["alt"], name
        assert 40 < len(text) < 800, name
        assert re.search(r"\d", text), name
        assert text.endswith(".")
        assert not re.search(r"<\w|nan|None|inf\b|\{", text), text


def test_words_are_exact(every: dict[str, Figure]) -> None:
    assert described(every["lines"]) == "p50 TTFT (ms) against rate: from 64.5 at 1 to 1,002 at 16."
    assert described(every["fewest"]) == (
        "Share of its limit (%) that each objective takes, against replicas: ttft_p99 <= 500ms from 160 at 1 to 53.3 at 3; "
        "tpot_p95 <= 50ms from 180 at 1 to 60 at 3. The fewest that keep all: 2."
    )
    assert "Cheapest that meets every objective: replicas 2." in described(every["cheapest"])
    assert "on the front: one (" in described(every["pareto"])
    assert "dominated: narrow" in described(every["pareto"])
    assert "no preemptions" in described(every["load in blocks"])
    assert "all are the same" in described(every["agreement"])


def test_on_a_dark_page_no_colour_of_a_light_one_is_left(every: dict[str, Figure]) -> None:
    for name, figure in every.items():
        dark = themed(figure, True)
        assert dark["layout"]["paper_bgcolor"] == dark["layout"]["plot_bgcolor"] == DARK_PAPER
        found = set(colors(dark))
        assert not found & set(DARK), name
        assert not found & {"white", "black"}, name
        for light in DARK:
            rgb = ",".join(str(int(light[k : k + 2], 16)) for k in (1, 3, 5))
            assert not any(color.startswith(f"rgba({rgb},") for color in found), name


def test_every_colour_is_one_of_the_style(every: dict[str, Figure]) -> None:
    from studies.figures import style

    known = {value for value in vars(style).values() if isinstance(value, str) and value.startswith("#")}
    for name, figure in every.items():
        assert {color for color in colors(figure) if not color.startswith("rgba")} <= known, name


def test_a_theme_changes_nothing_of_what_it_is_given(every: dict[str, Figure]) -> None:
    for figure in every.values():
        before = copy.deepcopy(figure)
        themed(figure, True)
        assert figure == before
        assert themed(figure, False) == figure


def test_a_theme_leaves_the_data(every: dict[str, Figure]) -> None:
    for figure in every.values():
        for light, dark in zip(figure["data"], themed(figure, True)["data"], strict=True):
            assert {key: light[key] for key in light if key in "xyz"} == {
                key: dark[key] for key in dark if key in "xyz"
            }


def test_a_figure_without_words_of_its_own_is_told_by_its_data() -> None:
    axes = {"xaxis": {"title": {"text": "Load (1/s)"}}, "yaxis": {"title": {"text": "<b>TTFT</b> (s)"}}}
    line = {"type": "scatter", "mode": "lines", "name": "p95", "x": [1, 2, 3], "y": [0.1, 5.0, 2.0]}
    assert described({"data": [line], "layout": axes}) == (
        "TTFT (s) against Load (1/s): p95 from 0.1 at 1 to 2 at 3, most 5 at 2."
    )
    bars = {"type": "bar", "orientation": "h", "y": ["a", "b"], "x": [1.0, 30.0]}
    assert described({"data": [bars], "layout": axes}) == "Bars of TTFT (s) against Load (1/s): a 1, b 30."
    assert described({"data": [], "layout": {}}) == "An empty figure."
