"""The link and the page say the same: settings are read from the query parameters when these come from outside, and written there
when a knob changes them.

Streamlit's own binding of widgets to query parameters is used for what belongs to one page; it would forget the scenario at every
change of the page, and silently put a default in the place of a value that it cannot have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import streamlit as st

from dashboard.settings import Settings, from_query, is_setting

SETTINGS, TOLD, REVISION = "settings", "told", "revision"
PAGE = "address.page"
"""Key of the session's state: the page that was drawn last, of those that are about a scenario."""
_SEEN, _BEFORE = "address.seen", "address.before"
LAG = 2.0
"""Seconds in which a browser may still send the query that it had before the last one was written."""


def current(page: str, own: Collection[str] = ()) -> Settings:
    """The settings that hold now. page: the page that asks, by its name. own: query parameters of the page itself."""
    state = st.session_state
    query = {name: st.query_params[name] for name in st.query_params if is_setting(name)}
    moved = state.get(PAGE) != page
    state[PAGE] = page
    if SETTINGS not in state:
        _adopt(query)
        strange = sorted(name for name in st.query_params if not is_setting(name) and name not in own)
        state[TOLD] += [
            f"{name}={st.query_params[name]}: no page and no scenario has such a setting" for name in strange
        ]
    elif query != state[_SEEN] and not (moved and not query) and not _lags(query):
        _adopt(query)  # a link was followed, or the browser went back
    write()
    return state[SETTINGS]


def change(settings: Settings) -> None:
    """Other settings, from a widget."""
    st.session_state[SETTINGS] = settings
    st.session_state[TOLD] = []


def changing(by: Callable[[Settings], Settings]) -> None:
    """Settings made of the present ones."""
    change(by(st.session_state[SETTINGS]))


def told() -> list[str]:
    """What in the last link could not be had, a sentence each."""
    return list(st.session_state.get(TOLD, ()))


def write() -> None:
    """Puts the settings into the link."""
    state = st.session_state
    query = state[SETTINGS].to_query()
    shown = {name: st.query_params[name] for name in st.query_params if is_setting(name)}
    if query == shown:
        state[_SEEN] = query
        return
    state[_BEFORE] = (shown, time.monotonic())
    for name in shown:
        if name not in query:
            del st.query_params[name]
    for name, text in query.items():
        if shown.get(name) != text:
            st.query_params[name] = text
    state[_SEEN] = query


def _adopt(query: dict[str, str]) -> None:
    settings, problems = from_query(query)
    st.session_state[SETTINGS] = settings
    st.session_state[TOLD] = problems
    st.session_state[_SEEN] = query


def _lags(query: dict[str, str]) -> bool:
    before = st.session_state.get(_BEFORE)
    return before is not None and before[0] == query and time.monotonic() - before[1] < LAG
