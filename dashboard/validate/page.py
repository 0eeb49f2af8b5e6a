"""Validate: predicted against measured, of the validations that come with the package, of kept ones, and of a run made here."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard import address, choices, page_query, workspace
from dashboard.markup import literal, message
from dashboard.validate import live as validation_live
from dashboard.validate import shelf as validation_shelf
from dashboard.validate import view as validation_view
from dashboard.validate.live import PAGE
from scenarios import InputError

PART, VALIDATION = "part", "validation"
PARTS = {"validations": "Validations", "live": "Execute here"}


def page() -> None:
    """The page: all validations, the one that the link names, or an execution of the present scenario."""
    st.title("Validate")
    query = page_query.current(PAGE, lambda name: name in (PART, VALIDATION) or validation_live.is_parameter(name))
    settings = address.current(PAGE, query)
    for line in address.told():
        st.warning(message(line))
    part = choices.parts_of(PAGE, PART, "What to look at", PARTS, query)
    if part == "live":
        if told := st.session_state.pop("validate.refused", ""):
            st.error(message(told))
        validation_live.form(settings, query)
        validation_live.running(query)
        return
    if (name := query.get(VALIDATION)) is not None:
        st.button("All validations", icon=":material/arrow_back:", type="tertiary", on_click=_all, args=(dict(query),))
        try:
            found = validation_shelf.named(name)
        except InputError as error:
            st.error(message(str(error)))
        else:
            validation_view.show(found, None if found.name == name else workspace.inside(name))
            return
    _list(query)


def _list(query: Mapping[str, str]) -> None:
    """All of them; a chosen one is opened."""
    st.markdown(
        "How far are predictions from what was measured? Runs of real engines, points of data-centre GPUs, and executions of the package's "
        "own engine, which the simulation must replay step by step. Errors stand beside what repeats of the same measurement differ by."
    )
    found = validation_shelf.every()
    words = {each.name: each.title if each.found is not None else f"{each.title} (cannot be opened)" for each in found}
    st.selectbox(
        f"Open one of {len(found)}", list(words), index=None, key="validate:open", placeholder="A validation",
        format_func=lambda name: words.get(name, name), on_change=_open, args=(dict(query),),
    )  # fmt: skip
    for each in found:
        with st.container(border=True):
            if each.found is None:
                st.markdown(f"**{literal(each.title)}**")
                st.warning(message(each.problem))
                continue
            st.markdown(f"**{literal(each.title)}** · {each.found.kind} · verdict: **{each.found.verdict}**")
            st.caption(
                literal(
                    f"{each.found.sentence}  \nFarthest: {validation_view.headline(each.found)}. Measured on: {each.found.measured}."
                )
            )
            st.button("Open", key=f"validate:open:{each.name}", on_click=_show, args=(each.name, dict(query)))
    st.caption(
        f"And folders of `servetwin validate SCENARIO --out FOLDER` below {workspace.folder()}. To make one here, choose “{PARTS['live']}”."
    )


def _all(query: dict[str, str]) -> None:
    choices.change(PAGE, query, validation=None)


def _open(query: dict[str, str]) -> None:
    if name := st.session_state["validate:open"]:
        _show(name, query)


def _show(name: str, query: dict[str, str]) -> None:
    choices.change(PAGE, query, validation=name)
