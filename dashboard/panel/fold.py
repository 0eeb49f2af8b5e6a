"""A part of the panel that folds."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.panel.state import put

OPEN = "panel.open"
"""Key of the session's state: whether a part is open, by its name, of those that the reader opened or folded."""


def fold(name: str, title: str, opened: bool = False) -> DeltaGenerator | None:
    """The box of a part, None while it is folded: what nobody sees is not drawn, which took most of a page's time.

    opened: whether it is as long as the reader did nothing about it.
    """
    key = f"group:{name}"
    put(key, st.session_state.get(OPEN, {}).get(name, opened))
    box = st.expander(title, key=key, on_change=_turned, args=(name, key))
    return box if box.open else None


def _turned(name: str, key: str) -> None:
    st.session_state[OPEN] = st.session_state.get(OPEN, {}) | {name: st.session_state[key]}
