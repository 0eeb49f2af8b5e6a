from __future__ import annotations

import re

from dashboard.markup import literal
from studies import glossary


def terms(page) -> list[str]:
    return [found.value for found in page.subheader]


def markdown(page) -> str:
    return "\n".join(found.value for found in page.markdown)


def test_every_term_is_on_the_page_under_its_group(opened):
    page = opened("glossary")
    assert not page.exception
    assert terms(page) == [entry.term for group in glossary.groups().values() for entry in group]
    assert [found.value for found in page.header][:-1] == list(glossary.GROUPS)


def test_a_link_leads_to_an_entry(opened):
    page = opened("glossary", q="TTFT")
    assert not page.exception
    assert terms(page)[0] == "TTFT"
    assert "`first token - arrival`" in markdown(page)
    assert page.text_input(key="q").value == "TTFT"


def test_an_export_key_and_a_word_of_another_tool_find_ours(opened):
    for wanted, term in (("p95_ttft_ms", "TTFT"), ("inter token latency (ITL)", "TPOT")):
        assert terms(opened("glossary", q=wanted))[0] == term


def test_an_entry_says_unit_keys_when_it_is_withheld_and_what_others_call_it(opened):
    said = markdown(opened("glossary", q="TPOT"))
    for fact in ("Unit: ms", "`*_tpot_ms`", "Withheld: ", "GuideLLM", "not** the same"):
        assert fact in said


def test_what_is_typed_is_searched_and_stands_in_the_link(opened):
    page = opened("glossary")
    page.text_input(key="q").set_value("goodput").run()
    assert terms(page)[0] == "goodput"
    assert page.text_input(key="q").proto.query_param_key == "q"  # the browser writes it


def test_what_is_to_be_read_next_is_a_click_away(opened):
    page = opened("glossary", q="TTFT")
    page.button(key="see:prefill").click().run()
    assert terms(page)[0] == "prefill"


def test_a_word_that_nobody_knows_is_told_and_the_way_back_is_there(opened):
    page = opened("glossary", q="zzzz")
    assert "No entry fits" in page.info[0].value
    page.button[0].click().run()
    assert len(terms(page)) == len(glossary.entries())


def test_links_within_the_page_lead_somewhere(opened):
    page = opened("glossary")
    anchors = {found.proto.anchor for found in (*page.subheader, *page.header)}
    linked = set(re.findall(r"\]\(#([^)]*)\)", markdown(page)))
    assert linked
    assert linked <= anchors


def test_the_table_of_other_tools_has_every_word(opened):
    (table,) = opened("glossary").dataframe
    assert len(table.value) == len(glossary.words_of_others().rows)


def test_what_was_set_on_other_pages_stays(opened):
    page = opened("glossary", q="TTFT", replicas="2")
    assert page.query_params["replicas"] in ("2", ["2"])
    assert page.session_state["settings"].changes == {"replicas": "2"}
    assert not page.warning


def test_nothing_of_a_text_is_read_as_markup():
    assert literal("a_b $x$ :red[no] <b>") == r"a_b \$x\$ :red\[no\] \<b\>"
