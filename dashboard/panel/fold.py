"""A part of the panel that folds."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

OPEN = "panel.open"
"""Key of the session's state: whether a part is open, by its name, of those that the reader opened or folded."""


def fold(name: str, title: str, unfolded: bool = False) -> DeltaGenerator | None:
    """The box of a part, None while it is folded: what nobody sees is not drawn, which took most of a page's time.

    title: the same at all times; with another one it is another box for Streamlit, and for the browser, which forgets where the
    keyboard was. unfolded: whether it is as long as the reader did nothing about it.
    """
    key = key_of(name)
    # Always: a box of another page is another one, too, while the state still tells the value of the former.
    st.session_state[key] = st.session_state.get(OPEN, {}).get(name, unfolded)
    box = st.expander(title, key=key, on_change=_folded, args=(name, key))
    return box if box.open else None


def key_of(name: str) -> str:
    """Of the box of a part."""
    return f"group-{name}"


def _folded(name: str, key: str) -> None:
    st.session_state[OPEN] = st.session_state.get(OPEN, {}) | {name: st.session_state[key]}
