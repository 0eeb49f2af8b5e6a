"""Where the knobs start from: a scenario, or a question with its answer."""

from __future__ import annotations

import streamlit as st

import scenarios
from dashboard import address, question
from dashboard.panel.state import put
from dashboard.settings import BASE, QUESTION, QUESTIONED, UPLOADED, Settings

_STARTED = "start.base"


def start(settings: Settings) -> None:
    """The choice, and the way back to it from all changes."""
    asked = settings.base.startswith(QUESTIONED)
    here = (st.session_state[address.PAGE], settings.base)
    if st.session_state.get(_STARTED) != here or "start" not in st.session_state:
        st.session_state[_STARTED] = here
        st.session_state["start"] = QUESTION if asked else BASE
    begun = st.segmented_control(
        "Where to start",
        [BASE, QUESTION],
        required=True,
        key="start",
        format_func={BASE: "A scenario", QUESTION: "A question"}.__getitem__,
        help="From a scenario that comes with servetwin or is yours (Files, below), or from a question with its answer.",
        width="stretch",
    )
    if begun == QUESTION:
        _questions(settings.base.removeprefix(QUESTIONED) if asked else None)
    else:
        _scenarios(None if asked else settings)
    changes = len(settings.changes) + (settings.trace is not None)
    if changes:
        st.button(
            f"Undo {changes} change{'s' * (changes > 1)}",
            key="undo",
            on_click=address.change,
            args=(Settings(settings.base),),
            help="Back to where you started from.",
            width="stretch",
        )


def _scenarios(settings: Settings | None) -> None:
    names = list(scenarios.names())
    if settings is not None and settings.base not in names:
        names.insert(0, settings.base)
    put("base", None if settings is None else settings.base)
    st.selectbox(
        "Scenario",
        names,
        None,
        key="base",
        placeholder="choose one",
        format_func=lambda name: f"{Settings(name).named()} (uploaded)" if name.startswith(UPLOADED) else name,
        on_change=_choose_base,
        help="Where the knobs start from. Choosing another drops the changes.",
    )


def _questions(name: str | None) -> None:
    known = {name: (topic, text) for topic, name, text in question.listed()}
    put("asked", name)
    st.selectbox(
        "Question",
        list(known),
        None,
        key="asked",
        placeholder="choose one",
        format_func=lambda name: f"{known[name][0]}: {known[name][1]}",
        on_change=_choose_question,
        help="Each comes with an answer, and with the runs that bear it out. Choosing one drops the changes.",
    )


def _choose_base() -> None:
    if (name := st.session_state["base"]) is not None:
        address.change(Settings(name))


def _choose_question() -> None:
    if (name := st.session_state["asked"]) is not None:
        address.change(Settings(QUESTIONED + name))
