"""The question that a page started from: what it asks and answers, and its points to choose from."""

from __future__ import annotations

import streamlit as st

from dashboard import address, question
from dashboard.markup import literal
from dashboard.question import Told
from dashboard.settings import Settings

_POINT = "point"


def show(settings: Settings) -> None:
    """Nothing where the settings start from a scenario."""
    told = question.asked(settings)
    if told is None:
        return
    with st.container(border=True, key="question-card"):
        st.markdown(f"**{literal(told.question)}**")
        st.markdown(literal(told.short))
        chosen = question.point_of(told, settings)
        if st.session_state.get(_POINT) != chosen:
            st.session_state[_POINT] = chosen
        st.selectbox(
            "A point of its study",
            list(told.points),
            None,
            key=_POINT,
            placeholder="choose one to see it run",
            on_change=_take,
            args=(told,),
            help="What the answer compares. All knobs are set as the point has them; figures of one run may differ a little from the "
            "answer's, which are means over seeds.",
        )
        with st.container(horizontal=True):
            if told.answer != told.short:
                with st.popover("The whole answer"):
                    st.markdown(literal(told.answer))
            with st.popover("What it assumes"):
                st.markdown(literal(told.assumes))
            if told.on_hardware:
                with st.popover("How to run it on hardware"):
                    st.markdown(literal(told.on_hardware))


def _take(told: Told) -> None:
    if (chosen := st.session_state[_POINT]) is not None:
        address.change(told.points[chosen])
    else:
        address.change(Settings(st.session_state[address.SETTINGS].base))
