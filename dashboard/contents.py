"""The pages in the order in which they are offered: folder, title, icon."""

from __future__ import annotations

import importlib
from types import ModuleType

PAGES = (
    ("explore", "Explore", ":material/tune:"),
    ("compare", "Compare", ":material/compare_arrows:"),
    ("capacity", "Capacity", ":material/trending_up:"),
    ("calibrate", "Calibrate", ":material/straighten:"),
    ("validate", "Validate", ":material/fact_check:"),
    ("studies", "Studies", ":material/grid_view:"),
    ("glossary", "Glossary", ":material/menu_book:"),
)
"""To add one: a folder with `page.py`, whose `page()` draws it, and a line here. The first is the default."""


def module(name: str) -> ModuleType:
    """A page's module, by its folder."""
    return importlib.import_module(f"dashboard.{name}.page")
