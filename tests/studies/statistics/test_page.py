"""docs/statistics.md: its examples run as they stand there."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "statistics.md"


def test_examples_give_what_the_page_shows() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags, encoding="utf-8")
    assert found.attempted > 10
    assert found.failed == 0, "see the output above"
