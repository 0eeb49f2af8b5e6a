"""What a sweep says of itself while it runs."""

from __future__ import annotations

import pytest

from studies.commands import sweeping


@pytest.mark.parametrize(
    ("passed", "done", "total", "said"),
    [
        (10.0, 1, 1000, ""),  # the first cells wait for processes to start: ten times as long as the others
        (11.0, 4, 1000, ""),
        (12.0, 6, 1000, ", 33 min left"),
        (10.0, 1, 20, ""),
        (10.0, 5, 20, ", 30 s left"),
        (12.0, 20, 20, ""),
    ],
)
def test_how_long_it_takes_is_said_when_that_can_be_told(passed, done, total, said):
    assert sweeping._left(passed, done, total) == said
