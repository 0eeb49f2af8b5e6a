"""The validations that come with the package say what docs/fidelity.md says, and nothing more."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from scenarios.errors import InputError
from studies import fidelity
from studies.reports import tables
from studies.validations import shipped

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")


def chapter(title: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"## {title}\n")[2], flags=re.MULTILINE)[0]


def test_every_chapter_of_the_page_is_shipped_and_no_other():
    titles = re.findall(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    told = [found.title for found in shipped.shipped()]
    assert [title for title in titles if title in told] == told
    assert set(titles) - set(told) == {
        "In short", "The worst ten cells", "Shipped profiles", "What is not modelled",
    }  # fmt: skip


@pytest.mark.parametrize("name", shipped.NAMES)
def test_the_outcome_is_that_of_the_page(name):
    found = shipped.load(name)
    assert found.name == name
    assert f"| {found.title} | {found.verdict} | {found.sentence} |" in PAGE
    assert found.about in chapter(found.title)


@pytest.mark.parametrize("name", [name for name in shipped.NAMES if name != "silicon"])
def test_every_figure_is_on_the_page(name):
    found = shipped.load(name)
    text = chapter(found.title).replace("-0.0 %", "+0.0 %")
    for row in found.rows:
        said = f"| {tables.label(row.metric)} | {tables.number(row.measured)} | {tables.number(row.predicted)} | "
        assert said + tables.percent(row.error, signed=True) in text, row


def test_every_target_of_measured_points_is_on_the_page():
    found = shipped.load("silicon")
    for name, said in found.facts:
        target = name.removeprefix("target: ")
        row = re.search(rf"^\| {re.escape(target)} \| (\d+) \| (.*) \| (.*) \| (met|missed) \|", PAGE, re.MULTILINE)
        assert row is not None
        n, ttft, tpot, met = row.groups()
        assert said.endswith(f"{n} points: {met}")
        limits = [cell.split(" of ")[1].replace("%", " %") for cell in (ttft, tpot)]
        assert all(f"of {limit}" in said for limit in limits)


def test_own_engine_is_its_file():
    stored = json.loads((ROOT / "docs" / "own-engine.json").read_text(encoding="utf-8"))
    found = shipped.load("own-engine")
    assert {row.metric: row.error for row in found.rows} == {row["metric"]: row["error"] for row in stored["outcome"]}
    assert fidelity._own(ROOT / "docs" / "own-engine.json").record == found


def test_measured_points_are_those_that_were_never_fitted():
    found = shipped.load("silicon")
    assert {points.each for points in found.points} == {"measured point"}
    assert {points.group for points in found.points} == {"vLLM", "SGLang", "TensorRT-LLM"}
    for row in found.rows:
        (points,) = [p for p in found.points if p.group == row.of and f"mean_{p.metric}_ms" == row.metric]
        errors = [b / a - 1 for a, b in zip(points.measured, points.predicted, strict=True)]
        assert row.error == pytest.approx(sum(errors) / len(errors))
        assert row.points == len(errors)


def test_worst_cells_of_the_page_are_among_those_that_are_shipped():
    rows = re.findall(r"^\| (.*) \| (\S+) \| (\S+ %) \| (\S+ %) \|$", chapter("The worst ten cells"), re.MULTILINE)
    shown = {
        (worst.where, worst.figure, tables.percent(worst.error, signed=True), tables.percent(worst.noise))
        for found in shipped.shipped()
        for worst in found.worst
    }
    assert len(rows) == 10
    assert set(rows) <= shown


def test_what_is_not_shipped_is_refused_with_the_names():
    with pytest.raises(InputError, match=r"unknown validation 'silicone': did you mean 'silicon'"):
        shipped.load("silicone")
