"""Choices of a page that stand in the link: what it names and cannot be had is told, what is usual is left out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import streamlit as st

from dashboard import page_query
from dashboard.markup import message


def select(
    page: str,
    name: str,
    label: str,
    options: Mapping[str, str],
    query: Mapping[str, str],
    *,
    usual: str | None = None,
    drops: Collection[str] = (),
    help: str | None = None,
) -> str:
    """One of many, in a box. options: in words, by what the link says of them. usual: the first one if not given.

    drops: parameters that another choice makes void.
    """
    wanted = _wanted(name, options, query, usual)
    key = _put(page, name, wanted)
    st.selectbox(
        label, list(options), format_func=lambda each: options.get(each, each), key=key, on_change=_chosen,
        args=(page, name, _usual(options, usual), tuple(drops)), help=help,
    )  # fmt: skip
    return wanted


def parts_of(page: str, name: str, label: str, options: Mapping[str, str], query: Mapping[str, str]) -> str:
    """One of a few parts of a page, side by side. The others' parameters are kept."""
    wanted = _wanted(name, options, query, None)
    key = _put(page, name, wanted)
    st.segmented_control(
        label, list(options), format_func=lambda each: options.get(each, each), key=key, required=True,
        on_change=_chosen, args=(page, name, _usual(options, None), ()), label_visibility="collapsed",
    )  # fmt: skip
    return wanted


def change(page: str, query: Mapping[str, str], **to: str | None) -> None:
    """Other values of some parameters; None: not in the link."""
    kept = {name: text for name, text in query.items() if name not in to}
    page_query.change(page, kept | {name: text for name, text in to.items() if text is not None})


def _usual(options: Mapping[str, str], usual: str | None) -> str:
    return next(iter(options)) if usual is None else usual


def _wanted(name: str, options: Mapping[str, str], query: Mapping[str, str], usual: str | None) -> str:
    first = _usual(options, usual)
    wanted = query.get(name, first)
    if wanted in options:
        return wanted
    found = wanted if len(wanted) <= 60 else f"{wanted[:60]}…"
    st.warning(message(f"{name}={found}: there is no such choice; shown instead: {options[first]}."))
    return first


def _put(page: str, name: str, value: str) -> str:
    key = f"{page}:{name}"
    if st.session_state.get(key) != value:
        st.session_state[key] = value
    return key


def _chosen(page: str, name: str, usual: str, drops: tuple[str, ...]) -> None:
    found = st.session_state[f"{page}:{name}"]
    gone: dict[str, str | None] = dict.fromkeys(drops)
    # As it is now: another choice may have been made before the page was drawn again.
    change(page, page_query.held(page), **gone | {name: None if found in (usual, None) else found})
