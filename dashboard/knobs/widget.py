"""A knob as a widget of the page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.knobs.controls import Choice, Knob, Scale, Switch, options, values


def widget(knob: Knob, key: str, **more: Any) -> Any:
    """The value that is chosen. key: of the session's state, where the value to begin with stands already. more: of the widget."""
    control, shown = knob.control, knob.shown()
    more |= {"key": key, "help": knob.help}
    if isinstance(control, Choice):
        found = options(control, shown)
        return st.selectbox(knob.label, list(found), format_func=lambda text: found.get(text, text), **more)
    if isinstance(control, Switch):
        return st.toggle(knob.label, **more)
    if isinstance(control, Scale):
        offered = values(control, shown)
        return st.select_slider(knob.label, offered, format_func=lambda v: f"{v:,.6g}{control.unit}", **more)
    label = f"{knob.label} ({control.unit})" if control.unit else knob.label
    kind = int if control.whole else float
    least, most = (kind(bound) for bound in (control.least, control.most))
    if shown is not None:  # a scenario may say what no knob would
        least, most = min(least, shown), max(most, shown)
    return st.number_input(label, least, most, step=kind(control.step), placeholder="none", **more)
