"""How long a reader waits: printed at the end of the tests, and not held to anything, since machines differ."""

from __future__ import annotations


def test_the_first_page_and_a_turned_knob_are_timed(browser, server, record_property):
    from tests.browser import timing

    times = timing.measured(server, browser, repeats=1)
    assert all(seconds > 0 for column in times.values() for name, seconds in column.items() if "drawn" in name)
    record_property("timed", "\n".join(timing.lines(times)))
