"""A part of the panel that folds."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.panel.state import put


def fold(name: str, title: str, opened: bool = False) -> DeltaGenerator | None:
    """The box of a part, None while it is folded: what nobody sees is not drawn, which took most of a page's time.

    opened: whether it is when it is there first.
    """
    put(key(name), st.session_state.get(key(name), opened))
    box = st.expander(title, key=key(name), on_change="rerun")
    return box if box.open else None


def key(name: str) -> str:
    """Of the session's state: whether the part is open."""
    return f"group:{name}"
