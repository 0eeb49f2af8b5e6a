"""What belongs to one page in the link: read from it, written there by the page's callbacks, and kept while another page is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import streamlit as st

from dashboard.address import LAG, PAGE


@dataclass
class _Held:
    """query: that holds. seen: that the link had when it was read or written last. before: the one before, and when it was replaced."""

    query: dict[str, str]
    seen: dict[str, str]
    before: dict[str, str] | None = None
    since: float = 0.0


def current(page: str, mine: Callable[[str], bool]) -> dict[str, str]:
    """The parameters that the page has now. mine: whether one of that name is the page's.

    To be called before `panel.ask`, which takes note of the page.
    """
    shown = {name: st.query_params[name] for name in st.query_params if mine(name)}
    held: _Held | None = st.session_state.get(_key(page))
    came = st.session_state.get(PAGE) != page
    if held is None:
        held = st.session_state[_key(page)] = _Held(shown, shown)
    elif shown != held.seen and not (came and not shown) and not _lags(held, shown):
        held.query = held.seen = shown  # a link was followed, or the browser went back
    _write(held, shown)
    return dict(held.query)


def held(page: str) -> dict[str, str]:
    """The parameters that the page has now, for a callback: several may come before the page is drawn again."""
    found: _Held = st.session_state[_key(page)]
    return dict(found.query)


def change(page: str, query: Mapping[str, str]) -> None:
    """Other parameters of the page, from a callback; they are in the link when the page is drawn."""
    held: _Held = st.session_state[_key(page)]
    held.query = dict(query)
    _write(held, {name: st.query_params[name] for name in {*held.seen, *held.query} if name in st.query_params})


def _write(held: _Held, shown: dict[str, str]) -> None:
    if shown != held.query:
        held.before, held.since = shown, time.monotonic()
        for name in shown.keys() - held.query.keys():
            del st.query_params[name]
        for name, text in held.query.items():
            if shown.get(name) != text:
                st.query_params[name] = text
    held.seen = dict(held.query)


def _lags(held: _Held, shown: dict[str, str]) -> bool:
    """Whether a browser still sends what it had before the link was written last."""
    return shown == held.before and time.monotonic() - held.since < LAG


def _key(page: str) -> str:
    return f"query:{page}"
