"""Calibrate."""

from __future__ import annotations

import streamlit as st


def page() -> None:
    st.title("Calibrate")
