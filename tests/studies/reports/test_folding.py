from __future__ import annotations

from studies.reports import folding
from studies.reports.tables import Table

TABLE = Table("t", ("n", "first\nof two", "second"), [("a", "1", "22"), ("bb", "333", "4")], "note")


def test_a_width_is_that_of_the_longest_line_of_each_column_and_of_the_gaps() -> None:
    assert folding.width(TABLE) == 2 + 3 + 6 + 3 + 6
    assert folding.width(TABLE, [0, 2]) == 2 + 3 + 6


def test_what_is_too_wide_goes_on_below_with_its_first_column() -> None:
    assert folding.folded(TABLE, 20) == [TABLE]
    first, second = folding.folded(TABLE, 19)
    assert first == Table("t", ("n", "first\nof two"), [("a", "1"), ("bb", "333")])
    assert second == Table("", ("n", "second"), [("a", "22"), ("bb", "4")], "note")


def test_a_column_that_fits_nowhere_stands_alone_with_the_first_ones() -> None:
    assert [table.head for table in folding.folded(TABLE, 3)] == [("n", "first\nof two"), ("n", "second")]
    assert folding.folded(TABLE, 3, first=2) == [TABLE]
