"""The link is the view: a knob writes it, and whoever follows it sees the same."""

from __future__ import annotations

import pytest

ANOTHER = "([name, text]) => new URLSearchParams(location.search).get(name) !== text"
BESIDE_TITLE = (
    "group => getComputedStyle(document.querySelector(`.st-key-group-${group} summary p`), '::after').content"
)
TTFT = "Cumulative distribution of time to first token"


def test_a_knob_turned_by_keyboard_changes_the_link_and_the_figure(reader):
    before = reader.open(workload__requests="200").figure(TTFT)
    reader.slider("Requests a second").press("ArrowRight")
    after = reader.redrawn(before, TTFT)
    assert reader.query() == {"workload.requests": "200", "workload.arrivals.rate": "3"}
    assert sum(len(trace["x"]) for trace in after.data) > 0


def test_a_shared_link_shows_the_same_cards_and_the_same_figures(readers):
    here = readers().open(scenario="azure-conversation", workload__requests="200")
    before = here.figure(TTFT)
    here.slider("Requests a second").press("ArrowRight")
    here.redrawn(before, TTFT)
    there = readers(stranger=True).follow(here.page.url)
    there.drawn(TTFT)
    assert there.cards() == here.cards()
    assert [(figure.alt, figure.data) for figure in there.figures()] == [(f.alt, f.data) for f in here.figures()]


def test_what_a_link_asks_for_and_cannot_be_had_is_named_and_the_rest_is_shown(reader):
    reader.open(workload__requests="200", engine__max_num_seqs="many", engine__batchingg="static", replicas="2")
    reader.drawn(TTFT)
    told = " ".join(reader.alerts())
    assert "max_num_seqs" in told
    assert "many" in told
    assert "batchingg" in told
    assert reader.query() == {"workload.requests": "200", "replicas": "2"}


def test_the_back_button_returns_to_the_former_settings(reader):
    before = reader.open(workload__requests="200").figure(TTFT)
    reader.slider("Requests a second").press("ArrowRight")
    after = reader.redrawn(before, TTFT)
    reader.page.go_back()
    reader.query_becomes(workload__arrivals__rate=None)
    assert reader.redrawn(after, TTFT).data == before.data
    assert reader.slider("Requests a second").get_attribute("aria-valuetext").startswith("2/s")


def test_two_tabs_with_different_settings_do_not_disturb_each_other(readers):
    one = readers().open(workload__requests="200")
    other = readers().open(workload__requests="100", replicas="2")
    before, beside = one.figure(TTFT), other.figure(TTFT)
    one.slider("Requests a second").press("ArrowRight")
    one.redrawn(before, TTFT)
    assert other.query() == {"workload.requests": "100", "replicas": "2"}
    assert other.figure(TTFT).data == beside.data
    other.slider("Requests a second").press("ArrowLeft")
    other.redrawn(beside, TTFT)
    assert one.query() == {"workload.requests": "200", "workload.arrivals.rate": "3"}


def test_knobs_show_the_same_on_every_page_that_has_them(reader):
    reader.open(workload__requests="200", workload__arrivals__rate="3", engine__kv_cache_dtype="fp8")
    reader.drawn(TTFT)
    for page in ("Compare", "Capacity", "Explore"):
        reader.page.get_by_role("link", name=page, exact=True).click()
        reader.page.get_by_role("heading", name=page, exact=True).wait_for()
        reader.settled()
        assert reader.slider("Requests a second").get_attribute("aria-valuetext").startswith("3/s"), page
        assert reader.page.get_by_role("combobox", name="KV cache").input_value() == "fp8", page


def test_a_group_that_was_opened_stays_open_on_another_page_and_on_the_way_back(reader):
    reader.open(workload__requests="200").section("Engine")
    reader.slider("max_num_seqs").wait_for()
    reader.page.get_by_role("link", name="Compare", exact=True).click()
    reader.page.get_by_role("heading", name="Compare", exact=True).wait_for()
    reader.settled().slider("max_num_seqs").wait_for()
    reader.page.go_back()
    reader.page.get_by_role("heading", name="Explore", exact=True).wait_for()
    reader.settled().slider("max_num_seqs").wait_for()
    reader.page.locator("summary").filter(has_text="Engine").click()
    reader.slider("max_num_seqs").wait_for(state="detached")


@pytest.mark.parametrize(
    ("group", "knob", "path"),
    [("Workload", "Requests a second", "workload.arrivals.rate"), ("Engine", "max_num_seqs", "engine.max_num_seqs")],
)
def test_a_turn_leaves_its_group_open_and_the_keyboard_where_it_was(reader, group, knob, path):
    reader.open(workload__requests="200").section(group)
    reader.slider(knob).press("ArrowLeft")
    reader.page.wait_for_function(ANOTHER, arg=[path, None])
    once = reader.settled().query()[path]
    reader.page.keyboard.press("ArrowLeft")
    reader.page.wait_for_function(ANOTHER, arg=[path, once])
    assert " changed" in reader.settled().page.evaluate(BESIDE_TITLE, group)
    reader.page.get_by_role("button", name="Undo").click()
    reader.query_becomes(**{path: None})
    reader.settled().slider(knob).wait_for()
    assert "changed" not in reader.page.evaluate(BESIDE_TITLE, group)
