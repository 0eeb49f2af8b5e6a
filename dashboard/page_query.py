"""What belongs to one page in the link: read from it, written there by the page's callbacks, and kept while another page is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from dashboard.address import PAGE
from dashboard.link import Part, shown


def current(page: str, mine: Callable[[str], bool]) -> dict[str, str]:
    """The parameters that the page has now. mine: whether one of that name is the page's.

    To be called before `panel.ask`, which takes note of the page.
    """
    found = shown(mine)
    part: Part | None = st.session_state.get(_key(page))
    if part is None:
        part = st.session_state[_key(page)] = Part(found, found)
    else:
        part.follows(found, came=st.session_state.get(PAGE) != page)
    part.write(found)
    return dict(part.query)


def held(page: str) -> dict[str, str]:
    """The parameters that the page has now, for a callback: several may come before the page is drawn again."""
    part: Part = st.session_state[_key(page)]
    return dict(part.query)


def change(page: str, query: Mapping[str, str]) -> None:
    """Other parameters of the page, from a callback; they are in the link when the page is drawn."""
    part: Part = st.session_state[_key(page)]
    part.query = dict(query)
    part.write(shown(lambda name: name in part.seen or name in part.query))


def _key(page: str) -> str:
    return f"query:{page}"
