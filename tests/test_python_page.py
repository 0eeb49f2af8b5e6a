"""docs/python.md: its examples run as they stand there, and it lists the columns that there are."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path

from studies import frames

PAGE = Path(__file__).parents[1] / "docs" / "python.md"


def columns(texts: dict[str, str]) -> str:
    return "\n".join(["| column | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in texts.items())])


def test_examples_give_what_the_page_shows(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(
        str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert found.attempted > 20
    assert found.failed == 0, "see the output above"


def test_columns_are_listed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for texts in (frames.REQUESTS, frames.STEPS):
        assert columns(texts) in page, f"write it anew: python -m {__name__}"


if __name__ == "__main__":  # writes the tables of columns
    text = PAGE.read_text(encoding="utf-8")
    for head, texts in (("requests()`:", frames.REQUESTS), ("steps()`:", frames.STEPS)):
        before, _, rest = text.partition(f"Columns of `{head}\n\n")
        _, _, after = rest.partition("\n\n")
        text = f"{before}Columns of `{head}\n\n{columns(texts)}\n\n{after}"
    sys.stdout.write(f"{PAGE.write_text(text, encoding='utf-8'):,} characters\n")
