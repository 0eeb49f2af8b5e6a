"""The run that a page holds the present one against: pinned by the reader, or the scenario as it is. It is in the link."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from dashboard import address
from dashboard.settings import BASE, DEFAULT, Settings, from_query
from scenarios import InputError, Scenario

PARAMETER = "baseline"
"""Query parameter of a page: the settings of the baseline, as a query of their own."""
_PINNED = "baseline.pinned"


@dataclass(frozen=True)
class Baseline:
    """settings: of the run that is compared with. pinned: by the reader; else the scenario without its changes."""

    settings: Settings
    scenario: Scenario
    pinned: bool


def text_of(settings: Settings) -> str:
    """Settings as the value of one query parameter."""
    return urlencode({BASE: DEFAULT} | settings.to_query() if settings.base == DEFAULT else settings.to_query())


def held(settings: Settings) -> tuple[Baseline | None, list[str]]:
    """What the present settings are held against, and a sentence on everything in the link that cannot be had; None where it
    would be the same run."""
    pinned, told = _pinned()
    found = pinned or Settings(settings.base)
    if found == settings:
        return None, told
    try:
        return Baseline(found, found.scenario(), pinned is not None), told
    except InputError as error:
        return None, [*told, f"Baseline: {error}"]


def read(page: str) -> None:
    """Takes the baseline from the link; comes the reader from another page, the one that was pinned before.

    To be called before `panel.ask`, which takes note of the page.
    """
    state, text = st.session_state, st.query_params.get(PARAMETER)
    if text is None and state.get(address.PAGE) != page:
        text = state.get(_PINNED)
        if text is not None:
            st.query_params[PARAMETER] = text
    state[_PINNED] = text


def _pinned() -> tuple[Settings | None, list[str]]:
    text = st.session_state.get(_PINNED)
    if text is None:
        return None, []
    settings, told = from_query(dict(parse_qsl(text, keep_blank_values=True)))
    return settings, [f"Baseline: {line}" for line in told]


def pin(settings: Settings) -> None:
    """Keeps settings as the baseline. A callback."""
    st.query_params[PARAMETER] = st.session_state[_PINNED] = text_of(settings)


def unpin() -> None:
    """Back to the scenario as it is. A callback."""
    st.query_params.pop(PARAMETER, None)
    st.session_state[_PINNED] = None


def is_pinned() -> bool:
    return st.session_state.get(_PINNED) is not None


def buttons(settings: Settings) -> None:
    """Pins the present settings, or lets go of those that are."""
    st.button(
        "Pin as baseline",
        icon=":material/keep:",
        key="baseline:pin",
        on_click=pin,
        args=(settings,),
        help="Every figure is then shown with its change against what is set now. The link keeps it.",
    )
    if is_pinned():
        st.button(
            "Unpin",
            icon=":material/keep_off:",
            key="baseline:unpin",
            on_click=unpin,
            help="Compare with the scenario without changes again.",
        )
        st.button(
            "Back to it",
            icon=":material/undo:",
            key="baseline:back",
            on_click=_back,
            help="Sets every knob as the baseline has it.",
        )


def _back() -> None:
    text = st.session_state.get(_PINNED)
    if text is not None:
        address.change(from_query(dict(parse_qsl(text, keep_blank_values=True)))[0])
