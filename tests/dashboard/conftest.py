"""The dashboard in a test: its pages without a browser, in a workspace of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cli
from dashboard.knobs import GROUPS
from dashboard.panel import fold
from dashboard.panel.files import FILES
from dashboard.panel.groups import OTHERS

apptest = pytest.importorskip("streamlit.testing.v1", reason="streamlit (extra `app`) is not installed")


@pytest.fixture(autouse=True)
def own_main(monkeypatch):
    """A page that runs takes the place of `__main__`, which later tests that start processes need as it was."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Path:
    """An empty workspace."""
    monkeypatch.setenv("SERVETWIN_WORKSPACE", str(tmp_path))
    return tmp_path


@pytest.fixture
def opened(workspace) -> Callable[..., Any]:
    """Opens a page by its function's module name, with query parameters: an `AppTest` that has run once.

    unfolded: with every group of knobs open; folded, they are not there.
    """

    def call(page: str = "explore", unfolded: bool = True, **query: str) -> Any:
        found = apptest.AppTest.from_file(str(Path(cli.__file__).with_name("app.py")), default_timeout=60)
        if page != "explore":
            found = apptest.AppTest.from_function(_one_page, args=(page,), default_timeout=60)
        for name, text in query.items():
            found.query_params[name.replace("__", ".")] = text
        if unfolded:
            found.session_state[fold.OPEN] = dict.fromkeys((*GROUPS, OTHERS, FILES), True)
        return found.run()

    return call


def _one_page(page: str) -> None:
    from importlib import import_module

    import_module(f"dashboard.{page}.page").page()
