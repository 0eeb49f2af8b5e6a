from __future__ import annotations

import pytest

from dashboard.markup import MOST, literal, message


@pytest.mark.parametrize(
    "text", ["![x](http://host/x.png)", "[a](b)", "*a* ~b~ `c`", "<b>", "$x$", ":red[x]", "# title"]
)
def test_nothing_of_a_text_is_markup(text):
    for mark in "`*[]<>$~#":
        assert literal(text).count(f"\\{mark}") == text.count(mark)


def test_words_with_underscores_stay_as_they_are():
    assert literal("engine.max_num_seqs: found 0") == "engine.max_num_seqs: found 0"


def test_a_message_that_quotes_a_long_value_is_cut_in_its_middle():
    said = message("replicas: found '" + "9" * 100_000 + "', but a whole number is needed")
    assert len(said) < MOST + 10
    assert said.startswith("replicas")
    assert said.endswith("needed")


def test_a_link_puts_no_picture_of_another_host_on_a_page(opened):
    page = opened(replicas="![x](http://host/x.png)")
    assert not page.exception
    shown = " ".join(warning.value for warning in page.warning)
    assert "replicas" in shown
    assert "![x](" not in shown
