"""Code that decides results is known by its content: a policy that is being worked on is another one after each change."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from studies import provenance

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    """A copy of one package, which stands for all of them."""
    shutil.copytree(ROOT / "serving", tmp_path / "serving", ignore=shutil.ignore_patterns("__pycache__"))
    package = SimpleNamespace(__file__=str(tmp_path / "serving" / "__init__.py"))
    monkeypatch.setattr(provenance, "DECIDING", ("serving",))
    monkeypatch.setattr(provenance.importlib, "import_module", lambda name: package)
    return tmp_path / "serving"


def source() -> str:
    return provenance.source.__wrapped__()


def test_the_same_code_is_the_same_wherever_it_lies(tree: Path, tmp_path) -> None:
    before = source()
    assert before == source()
    (tree / "notes.txt").write_text("no code")
    assert source() == before


def test_a_changed_policy_is_other_code(tree: Path) -> None:
    before = source()
    file = tree / "policies.py"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert source() != before


def test_an_environment_names_all_that_figures_depend_on() -> None:
    assert list(provenance.environment()) == ["servetwin", "python", "numpy", "source"]
