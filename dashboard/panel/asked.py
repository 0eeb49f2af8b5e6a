"""What a page about a scenario asks: draws the panel, and says what is set there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import streamlit as st

from dashboard import address, traces
from dashboard.knobs import turning
from dashboard.markup import message
from dashboard.panel import groups
from dashboard.panel.files import files, missing
from dashboard.panel.start import start
from dashboard.settings import MissingUploadError, Settings
from scenarios import InputError, Scenario

_VALID = "settings.valid"


@dataclass(frozen=True)
class Asked:
    """What a page is about. scenario: None where the settings do not fit together; then `problem` says why.

    valid: the last settings that did, with their scenario; None before there were any.
    """

    settings: Settings
    scenario: Scenario | None
    problem: str = ""
    missing: MissingUploadError | None = None
    valid: tuple[Settings, Scenario] | None = None


def ask(page: str, own: Collection[str] = (), begin: Callable[[Scenario], object] | None = None) -> Asked:
    """Draws the sidebar and says what is set there.

    page: the page's name. own: query parameters of the page itself. begin: called with the scenario before the knobs are drawn, which
    takes as long as many a simulation.
    """
    settings = address.current(page, own)
    asked = _read(settings)
    if begin is not None and asked.valid is not None:
        begin(asked.valid[1])
    with st.sidebar:
        start(settings)
        drawn = asked.valid[1] if asked.valid is not None else Settings().scenario()
        if drawn is not None:
            groups.knob_groups(settings, drawn)
        groups.others(settings, drawn)
        files(settings)
    for line in address.told():
        st.warning(message(line))
    if asked.scenario is not None and (begun := traces.said(settings, asked.scenario)) is not None:
        st.info(begun)
    if asked.missing is not None:
        missing(asked.missing)
    elif asked.problem:
        st.error(message(asked.problem))
        _ways_out(settings, None if asked.valid is None else asked.valid[0])
    if said := groups.said(settings):
        st.info(said)
    return asked


def _read(settings: Settings) -> Asked:
    try:
        found = settings.scenario()
    except MissingUploadError as error:
        return Asked(settings, None, str(error), error, _last_valid())
    except InputError as error:
        return Asked(settings, None, str(error), None, _last_valid())
    st.session_state[_VALID] = (settings, found)
    return Asked(settings, found, valid=(settings, found))


def _last_valid() -> tuple[Settings, Scenario] | None:
    """The last settings that fitted together, if they still do: a file of theirs may have been deleted."""
    found: tuple[Settings, Scenario] | None = st.session_state.get(_VALID)
    return found if found is not None and turning.loads(found[0]) else None


def _ways_out(settings: Settings, before: Settings | None) -> None:
    """Buttons that make settings fit together."""
    with st.container(horizontal=True, key="ways-out"):
        for i, change in enumerate(turning.ways_out(settings)):
            st.button(
                change.says,
                key=f"way:{i}",
                on_click=address.change,
                args=(change.on(settings),),
                help="; ".join(f"{path}={text}" for path, text in change.texts),
            )
        if before is not None:
            st.button(
                "Take it back",
                key="way:back",
                icon=":material/undo:",
                on_click=address.change,
                args=(before,),
                help="To the last settings that fit together.",
            )
