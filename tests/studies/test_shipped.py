"""Files that come with the program, and those of the user, are found and refused in one way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scenarios
from scenarios import InputError, library, serving_profile
from scenarios.shipped import Found, Shipped
from studies import ablations
from studies.sweeps import study

READERS = {
    "scenario": (scenarios.load, "multi-turn", "multiturn"),
    "study": (study.read, "int4_at_batch_256", "int4_at_batch_25"),
    "ablation": (ablations.read, "prefix_cache", "prefix_cach"),
    "serving profile": (serving_profile.load, "inferencemax-vllm", "inferencemax-vlm"),
}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_not_there_is_answered_with_the_nearest(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Callable[[str | Path], Any]
    read, right, wrong = READERS[kind]
    monkeypatch.chdir(tmp_path)
    (tmp_path / right).mkdir()  # which hides nothing
    assert read(right) is not None
    with pytest.raises(
        InputError, match=rf"^{wrong}: there is no such file or shipped {kind}; did you mean '{right}'\? Shipped: "
    ):
        read(wrong)
    with pytest.raises(InputError, match=r"^nowhere\.yaml: there is no such file$"):
        read("nowhere.yaml")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"^folder: is a folder, but a YAML file is needed$"):
        read(Path("folder"))


def test_a_file_of_the_user_comes_before_a_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = Shipped(library, "scenario")
    assert shipped.find("demo") == Found(scenarios.template("demo"), "demo.yaml", None)
    (tmp_path / "demo").write_text("mine")
    assert shipped.find("demo") == Found("mine", "demo", Path())
    with pytest.raises(InputError, match="unknown scenario 'dem': did you mean 'demo'"):
        shipped.text("dem")
