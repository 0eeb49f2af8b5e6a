from __future__ import annotations

import pytest

from dashboard.numbers import whole


@pytest.mark.parametrize(
    ("text", "found"), [("1", 1), ("007", 7), ("50", 50), ("٣", 3), ("0", None), ("51", None), ("-1", None), ("²", None), ("", None), ("1.0", None)]
)  # fmt: skip
def test_a_whole_number_of_a_link_lies_between_its_bounds(text, found):
    assert whole(text, 1, 50) == found


def test_zero_is_a_number_where_it_is_allowed():
    assert whole("000", 0, 50) == 0


@pytest.mark.parametrize(("page", "name"), [("explore", "request"), ("studies", "seeds"), ("compare", "seeds"), ("capacity", "length")])  # fmt: skip
def test_more_digits_than_python_reads_are_told_of(opened, page, name):
    at = opened(page, **{name: "9" * 5000, "view": "Requests"})
    assert not at.exception
    assert any(f"{name}=9" in each.value for each in at.warning)
    assert not at.run().exception
