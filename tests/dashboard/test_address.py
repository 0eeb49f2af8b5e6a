from __future__ import annotations

import pytest

from dashboard import link

apptest = pytest.importorskip("streamlit.testing.v1", reason="streamlit (extra `app`) is not installed")


def _script() -> None:
    import streamlit as st

    from dashboard import address

    page = st.session_state.get("page", "one")
    settings = address.current(page, own={"view"})
    st.text(repr(sorted(settings.to_query().items())))
    for line in address.told():
        st.warning(line)
    st.button("more", on_click=address.change, args=(settings.changed("replicas", "3"),))


@pytest.fixture
def script(workspace):
    return apptest.AppTest.from_function(_script, default_timeout=30)


def shown(page) -> str:
    return page.text[0].value


def test_a_link_is_followed_when_the_page_opens_and_when_it_changes(script):
    script.query_params["replicas"] = "2"
    assert shown(script.run()) == "[('replicas', '2')]"
    script.query_params["replicas"] = "4"
    assert shown(script.run()) == "[('replicas', '4')]"


def test_a_change_is_in_the_link_and_going_back_undoes_it(script, monkeypatch):
    monkeypatch.setattr(link, "LAG", 0.0)
    script.run()
    script.button[0].click().run()
    assert script.query_params["replicas"] == "3"
    del script.query_params["replicas"]
    assert shown(script.run()) == "[]"


def test_a_browser_that_still_has_the_former_link_undoes_nothing(script, monkeypatch):
    monkeypatch.setattr(link, "LAG", 60.0)
    script.run()
    script.button[0].click().run()
    del script.query_params["replicas"]  # sent before the new link arrived there
    assert shown(script.run()) == "[('replicas', '3')]"
    assert script.query_params["replicas"] == "3"


def test_what_a_widget_changes_holds_whatever_link_the_browser_still_has(script, monkeypatch):
    monkeypatch.setattr(link, "LAG", 0.0)
    script.run()
    script.button[0].click().run()
    del script.query_params["replicas"]
    assert shown(script.button[0].click().run()) == "[('replicas', '3')]"


def test_another_page_takes_the_settings_along(script, monkeypatch):
    monkeypatch.setattr(link, "LAG", 0.0)
    script.query_params["replicas"] = "2"
    script.run()
    script.session_state["page"] = "two"
    del script.query_params["replicas"]  # Streamlit opens a page with an empty query
    assert shown(script.run()) == "[('replicas', '2')]"
    assert script.query_params["replicas"] == "2"


def test_what_a_link_cannot_have_is_told_until_something_is_changed(script):
    script.query_params["replicas"] = "none"
    script.query_params["strange"] = "1"
    script.query_params["view"] = "load"
    page = script.run()
    assert len(page.warning) == 2
    assert "replicas" in page.warning[0].value
    assert page.warning[1].value.startswith("strange=1")
    assert "replicas" not in page.query_params
    page.button[0].click().run()
    assert not page.warning
