"""The validations that come with the package: their records, written by `servetwin fidelity` and read from there."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from scenarios.errors import InputError, unknown
from studies.validations.record import Validation

NAMES = ("rtx4090-llama-3.1-8b", "vllm-cpu-qwen3-tiny", "silicon", "own-engine")
"""In the order in which docs/fidelity.md tells them."""


def shipped() -> list[Validation]:
    """All of them."""
    return [load(name) for name in NAMES]


@cache
def load(name: str) -> Validation:
    """One by its name.

    Raises:
        InputError: there is none of that name.
    """
    if name not in NAMES:
        raise InputError(f"validation: {unknown('validation', name, NAMES)}")
    text = resources.files("studies.validations").joinpath("shipped", f"{name}.json").read_bytes()
    return Validation.model_validate_json(text)


def write(found: Validation, folder: Path) -> Path:
    """Its file in `folder`, as it is shipped."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.name}.json"
    path.write_text(found.model_dump_json(indent=1, exclude_defaults=True) + "\n", encoding="utf-8")
    return path
