"""Values of widgets that are set by the page, not by the reader."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import address

_NOTHING = object()
_PUT = "panel.put"


def put(key: str, value: Any) -> None:
    """The value of a widget, if it has another: what somebody is typing there is left alone otherwise.

    A widget of another page is another one for Streamlit, with its default, though the state still tells the value of the former.
    """
    pages: dict[str, str] = st.session_state.setdefault(_PUT, {})
    page = st.session_state[address.PAGE]
    if pages.get(key) != page or st.session_state.get(key, _NOTHING) != value:
        pages[key] = page
        st.session_state[key] = value
