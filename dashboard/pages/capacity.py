"""Capacity."""

from __future__ import annotations

import streamlit as st

from dashboard import panel


def page() -> None:
    st.title("Capacity")
    panel.ask("capacity")
