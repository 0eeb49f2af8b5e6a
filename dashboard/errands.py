"""Work that a reader begins with a button, one piece a page: it goes on while other pages are looked at, until it has ended or is closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import streamlit as st

from dashboard import parts
from dashboard.jobs import Job
from dashboard.markup import literal


@dataclass(frozen=True)
class Errand:
    """about: what the page needs to show it; its title, for some."""

    about: Any
    job: Job


def begin(page: str, about: Any, function: Callable[..., Any], *arguments: Any) -> None:
    """Begins the page's work, in the place of what it had. The same again, or of another reader, is another piece of work: it finds what
    the one before left behind."""
    job = parts.ask(_key(page), uuid4(), function, *arguments)
    st.session_state[_key(page)] = Errand(about, job)


def of(page: str) -> Errand | None:
    """What the page began and nobody has closed."""
    found: Errand | None = st.session_state.get(_key(page))
    return found


def is_going(page: str) -> bool:
    """Whether it goes on."""
    found = of(page)
    return found is not None and not found.job.ended


def close(page: str) -> None:
    """Takes it off the page."""
    st.session_state.pop(_key(page), None)


def box(page: str, draw: Callable[[Any, bool], None], then: Callable[[Any], None]) -> None:
    """Draws the page's work, while it goes on and when it has ended; nothing where there is none. For work that keeps nothing when it is
    cancelled, and whose `about` is its title.

    draw: as of `parts.follow`. then: draws buttons that lead on, of a result that is done.
    """
    found = of(page)
    if found is None:
        return
    with st.container(border=True):
        st.markdown(f"**{literal(found.about)}**")
        if found.job.state == "cancelled":
            st.info("Cancelled. Nothing was written.")
        else:
            parts.follow(found.job, draw, "starting")
        if not found.job.ended:
            return
        with st.container(horizontal=True):
            if found.job.state == "done":
                then(found.job.result)
            st.button("Close", on_click=close, args=(page,), key=f"{page}:close")


def _key(page: str) -> str:
    return f"errand:{page}"
