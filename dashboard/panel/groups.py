"""The knobs of a scenario, group by group, and a text for all that no knob shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import streamlit as st

from dashboard import address, knobs
from dashboard.knobs import Knob, turning
from dashboard.knobs.widget import widget
from dashboard.panel.fold import fold, key_of
from dashboard.panel.state import put
from dashboard.settings import Settings
from scenarios import Scenario

UNFOLDED = ("Workload", "Model", "Hardware")
"""Groups that are open from the start."""
OTHERS = "others"
"""Name of the group of what no knob shows."""
_SAID = "panel.said"


def knob_groups(settings: Settings, scenario: Scenario) -> None:
    """Every group of knobs, and how many of each are changed; the knobs of those that are open."""
    changed: dict[str, int] = {}
    for name, found in groupby(knobs.of(scenario), key=lambda knob: knob.group):
        mine = list(found)
        changed[name] = sum(knob.path in settings.changes for knob in mine)
        if (box := fold(name, name, name in UNFOLDED)) is not None:
            with box:
                for knob in mine:
                    _knob(knob)
    # Beside the titles, which have to stay as they are.
    rules = [
        f'.st-key-{key_of(name)} summary p::after {{content: " · {n} changed"}}' for name, n in changed.items() if n
    ]
    st.html(f"<style>{' '.join(rules) or '/* none */'}</style>")


def said(settings: Settings) -> str:
    """What else the last turn of a knob changed, if these settings came of it."""
    of, text = st.session_state.get(_SAID, (None, ""))
    return text if of == settings else ""


def _knob(knob: Knob) -> None:
    key = f"knob:{knob.path}"
    put(key, knob.shown())
    widget(knob, key, on_change=_turned, args=(knob,))


def _turned(knob: Knob) -> None:
    settings: Settings = st.session_state[address.SETTINGS]
    found, said = turning.turned(settings, knob, st.session_state[f"knob:{knob.path}"])
    address.change(found)
    st.session_state[_SAID] = (found, said)


def others(settings: Settings, scenario: Scenario | None) -> None:
    """Changes that no knob shows, as lines of text."""
    known = {knob.path for knob in knobs.of(scenario)} if scenario is not None else set()
    lines = [f"{path}={text}" for path, text in settings.changes.items() if path not in known]
    if (box := fold(OTHERS, "Anything else", bool(lines))) is None:
        return
    with box:
        put("others", "\n".join(lines))
        st.text_area(
            "Fields of the scenario, a line each",
            key="others",
            placeholder="engine.long_prefill_token_threshold=2048",
            help="Path and value, as of `servetwin run --set`. `servetwin schema` lists the fields.",
            on_change=_typed,
            args=(known,),
        )


def _typed(known: set[str]) -> None:
    settings: Settings = st.session_state[address.SETTINGS]
    kept = {path: text for path, text in settings.changes.items() if path in known}
    for line in st.session_state["others"].splitlines():
        path, _, text = line.partition("=")
        if path.strip():
            kept[path.strip()] = text.strip()
    address.change(replace(settings, changes=kept))
