from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scenarios
from scenarios import Scenario

MINIMAL: dict[str, Any] = {
    "model": "qwen3-tiny",
    "hardware": "cpu",
    "workload": {"requests": 10, "arrivals": {"process": "poisson", "rate": 2}, "input": 100, "output": 20},
}


def merged(base: Any, changes: Any) -> Any:
    """`base` with `changes` laid over it, mapping by mapping."""
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return changes
    return base | {key: merged(base.get(key), value) for key, value in changes.items()}


@pytest.fixture
def build() -> Callable[..., Scenario]:
    """A small valid scenario with changes."""

    def make(**changes: Any) -> Scenario:
        return Scenario.model_validate(merged(MINIMAL, changes))

    return make


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    """The message that refuses a scenario file: a minimal one with lines put after it, or a whole text."""

    def message(text: str, **options: Any) -> str:
        file = tmp_path / "bad.yaml"
        file.write_text(text)
        with pytest.raises(scenarios.InputError) as caught:
            scenarios.load(file, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(f"{tmp_path}{os.sep}", "")

    return message


GOOD = """\
model: qwen3-tiny
hardware: cpu
engine: {max_model_len: 1024}
workload:
  requests: 10
  arrivals: {process: poisson, rate: 2}
  input: 100
  output: 20
"""


@pytest.fixture
def good() -> str:
    """A valid scenario file's text."""
    return GOOD


@pytest.fixture
def data() -> Path:
    """The folder of public traces; tests that need it are skipped without it."""
    folder = Path(os.environ.get("SERVETWIN_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not (folder / "traces").is_dir():
        pytest.skip(f"no public traces in {folder.name}/: set SERVETWIN_DATA to the folder that holds traces/")
    return folder
