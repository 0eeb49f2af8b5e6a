"""What a page does with work that was cancelled."""

from __future__ import annotations

WORK = ("simulate", "k")


def buttons(page) -> list[str]:
    return [button.label for button in page.button]


def _page() -> None:
    import streamlit as st

    import scenarios
    from dashboard import parts
    from dashboard.explore import work

    key = st.session_state.get("asked", "k")
    scenario = scenarios.load("demo", overrides=["workload.requests=5"])
    parts.follow(parts.ask("here", key, work.simulate, scenario), lambda run, complete: st.success(run.name))


def clicked(page, button: str):
    """The page as it is right after a button that it no longer shows."""
    page.session_state[f"{button}:{WORK}"] = True
    page.run()
    del page.session_state[f"{button}:{WORK}"]
    return page


def test_what_is_cancelled_stays_so_until_it_is_asked_for_again(workspace):
    from streamlit.testing.v1 import AppTest

    page = clicked(AppTest.from_function(_page, default_timeout=60), "cancel")
    assert page.info[0].value.startswith("Cancelled.")
    assert buttons(page.run()) == ["Run again"]
    page.button[0].click().run()
    assert [done.value for done in page.success] == ["demo"]
    assert page.run().success


def test_what_is_cancelled_does_not_keep_others_from_being_run(workspace):
    from streamlit.testing.v1 import AppTest

    page = clicked(AppTest.from_function(_page, default_timeout=60), "cancel")
    page.session_state["asked"] = "other"
    assert page.run().success
    page.session_state["asked"] = "k"
    assert page.run().success
