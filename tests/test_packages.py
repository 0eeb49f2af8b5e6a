"""What an installed servetwin holds: every package of the tree, and the files that stand beside their code."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
TOP = ("serving", "scenarios", "sim", "gpu_backend", "calibration", "studies", "dashboard")


def test_every_package_ships() -> None:
    """They are listed by hand; one that is forgotten is there in a checkout and missing where it is installed."""
    tree = {".".join(f.parent.relative_to(ROOT).parts) for top in TOP for f in (ROOT / top).rglob("__init__.py")}
    assert sorted(SETUPTOOLS["packages"]) == sorted(tree)


def test_every_file_beside_the_code_ships() -> None:
    shipped = {
        file
        for package, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for file in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    beside = {
        f
        for top in TOP
        for f in (ROOT / top).rglob("*")
        if f.is_file() and not {f.suffix, f.parent.name} & {".py", "__pycache__"}
    }
    assert beside - shipped == set()
