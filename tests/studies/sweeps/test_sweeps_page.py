"""docs/sweeps.md: its studies are studies, its examples run as they stand there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import yaml

import cli
from studies.sweeps import run
from studies.sweeps.study import from_mapping

PAGE = Path(cli.__file__).parent / "docs" / "sweeps.md"
BLOCKS = [
    yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
]


def test_every_study_on_the_page_is_one():
    assert len(BLOCKS) == 3
    for block in BLOCKS:
        planned = run.plan(from_mapping({"base": "azure-conversation"} | block | {"seeds": 1}))
        assert not planned.refused


def test_the_first_one_has_the_cells_that_the_page_counts():
    study = from_mapping(BLOCKS[0])
    assert (len(study.points()), study.seeds) == (9, 5)
    assert "9 points, 5 seeds of each, 45 cells to run" in PAGE.read_text(encoding="utf-8")


def test_examples_run_as_they_stand_on_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert found.attempted > 5
    assert found.failed == 0
