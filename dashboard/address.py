"""The link and the page say the same: settings are read from the query parameters when these come from outside, and written there
when a knob changes them.

Streamlit's own binding of widgets to query parameters is used for what belongs to one page; it would forget the scenario at every
change of the page, and silently put a default in the place of a value that it cannot have.
"""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st

from dashboard.link import Part, shown
from dashboard.settings import Settings, from_query, is_setting

SETTINGS, TOLD = "settings", "told"
PAGE = "address.page"
"""Key of the session's state: the page that was drawn last, of those that are about a scenario."""
_PART = "address.part"


def current(page: str, own: Collection[str] = ()) -> Settings:
    """The settings that hold now. page: the page that asks, by its name. own: query parameters of the page itself."""
    state = st.session_state
    query = shown(is_setting)
    came = state.get(PAGE) != page
    state[PAGE] = page
    if SETTINGS not in state:
        state[_PART] = Part(query, query)
        state[SETTINGS], told = from_query(query)
        strange = sorted(name for name in st.query_params if not is_setting(name) and name not in own)
        state[TOLD] = [
            *told, *(f"{name}={st.query_params[name]}: no page and no scenario has such a setting" for name in strange)
        ]  # fmt: skip
    elif state[_PART].follows(query, came):
        state[SETTINGS], state[TOLD] = from_query(query)
    write()
    found: Settings = state[SETTINGS]
    return found


def change(settings: Settings) -> None:
    """Other settings, from a widget."""
    st.session_state[SETTINGS] = settings
    st.session_state[TOLD] = []
    part: Part = st.session_state[_PART]
    part.touched = True


def told() -> list[str]:
    """What in the last link could not be had, a sentence each."""
    return list(st.session_state.get(TOLD, ()))


def write() -> None:
    """Puts the settings into the link."""
    part: Part = st.session_state[_PART]
    part.query = st.session_state[SETTINGS].to_query()
    part.write(shown(is_setting))
