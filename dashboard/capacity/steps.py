"""Work of the capacity page, place by place: begun by itself or by a button, and left when something else is asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from dashboard import parts
from dashboard.capacity import work as capacity_work
from dashboard.capacity.query import Question

_BEGUN = "capacity.begun"


def step(
    slot: str,
    key: Hashable,
    function: Callable[..., Any],
    asked: Question,
    draw: Callable[[Any, bool], None],
    button: str = "",
    about: str = "",
) -> Callable[[], None]:
    """A place for a piece of work and what it finds. button: that begins it; empty: it begins by itself. about: what it does.

    Returns:
        What draws the work, once the rest of the page is there: it waits for it.
    """
    begun: dict[str, Hashable] = st.session_state.setdefault(_BEGUN, {})
    if about:
        st.caption(about)
    place = st.container()
    if not button or begun.get(slot) == key:
        job = parts.ask(slot, key, function, asked)

        def follow() -> None:
            with place:
                parts.follow(job, draw, "begins")

        return follow
    if begun.pop(slot, None) is not None:
        parts.ask(slot, "nothing", capacity_work.nothing)  # what was begun for other settings is not wanted any more
    place.button(button, key=f"begin:{slot}", type="primary", on_click=begun.update, args=({slot: key},))
    return _nothing


def _nothing() -> None:
    """There is no work to draw."""
