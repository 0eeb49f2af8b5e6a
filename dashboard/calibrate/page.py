"""Calibrate: cost profiles, what they rest on and how far they reach; measuring this machine; importing what others measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard import address, choices, page_query
from dashboard.calibrate import importing as profile_import
from dashboard.calibrate import measuring as profile_measuring
from dashboard.calibrate import shelf as profile_shelf
from dashboard.calibrate import view as profile_view
from dashboard.calibrate.measuring import PAGE
from dashboard.calibrate.shelf import Entry
from dashboard.markup import message
from scenarios import InputError
from studies.reports.tables import number, percent

PART, PROFILE = "part", "profile"
PARTS = {"profiles": "Profiles", "measure": "Measure this machine", "import": "Import"}
FILTERS = {
    "of_model": ("Model", "model"),
    "device": ("Device", "hardware"),
    "precision": ("Precision", "dtype"),
    "tp": ("Tensor parallel", "tensor_parallel_size"),
}
"""Query parameters that say which profiles are listed: label, and key of their facts."""
ANY = "any"


def page() -> None:
    """The page: all profiles, or the one that the link names; or one of the ways to make more."""
    st.title("Calibrate")
    query = page_query.current(PAGE, _is_parameter)
    settings = address.current(PAGE, query)
    for line in address.told():
        st.warning(message(line))
    part = choices.parts_of(PAGE, PART, "What to do", PARTS, query)
    if told := st.session_state.pop("calibrate.refused", ""):
        st.error(message(told))
    if part == "measure":
        profile_measuring.form(query)
    elif part == "import":
        profile_import.form(query)
    profile_measuring.running(query)
    if part != "profiles":
        return
    if PROFILE in query:
        st.button(
            "All profiles", icon=":material/arrow_back:", type="tertiary", on_click=_all, args=(dict(query),)
        )  # fmt: skip
        try:
            entry = profile_shelf.named(query[PROFILE])
        except InputError as error:
            st.error(message(error))
        else:
            scenario, problem = None, ""
            try:
                scenario = settings.scenario()
            except InputError as error:
                problem = f"Its settings do not fit together, which Explore mends: {error}"
            profile_view.show(entry, settings, scenario, problem)
            return
    _list(profile_shelf.every(), query)


def _is_parameter(name: str) -> bool:
    return name in (PART, PROFILE, profile_import.KIND) or name in FILTERS or profile_measuring.is_parameter(name)


def _all(query: dict[str, str]) -> None:
    choices.change(PAGE, query, profile=None)


def _list(found: Sequence[Entry], query: Mapping[str, str]) -> None:
    """All that pass the filters; a chosen one is shown."""
    st.markdown(
        "A profile says how long steps of an engine take, as measured on a device. Without one, simulations use a roofline of the data "
        "sheet. Choose one to see what it rests on, and whether the present scenario stays inside what was measured."
    )
    with st.container(horizontal=True):
        for name, (label, key) in FILTERS.items():
            values = sorted({str(entry.facts[key]) for entry in found})
            chosen = choices.select(PAGE, name, label, {ANY: "any"} | {v: v for v in values}, query)
            if chosen != ANY:
                found = [entry for entry in found if str(entry.facts[key]) == chosen]
    if not found:
        st.info("No profile has all of these. Take a filter away, or measure this machine.")
        return
    titles = {entry.name: entry.title for entry in found}
    st.selectbox(
        f"Open one of {len(found):,}", list(titles), index=None, key="calibrate:open",
        format_func=lambda name: titles.get(name, name), placeholder="A profile", on_change=_open, args=(dict(query),),
    )  # fmt: skip
    rows = [
        {
            "profile": entry.title,
            "model": entry.facts["model"],
            "device": entry.facts["hardware"],
            "precision": entry.facts["dtype"],
            "TP": entry.facts["tensor_parallel_size"],
            "measured with": entry.facts["engine"],
            "CV error": percent(entry.facts["cv_error"]),
            "tokens": number(entry.facts["domain"]["tokens"]["max"]),
            "decodes": number(entry.facts["domain"]["decode_sequences"]["max"]),
            "context": number(entry.facts["domain"]["decode_context"]["max"]),
        }
        for entry in found
    ]
    event = st.dataframe(
        rows, hide_index=True, on_select="rerun", selection_mode="single-row", key="calibrate:list",
        height=min(38 + 35 * len(rows), 600),
        alt="Profiles, a row each: model, device, precision, tensor-parallel size, engine, cross-validated error, and the most tokens, "
        "decodes and context that were measured.",
    )  # fmt: skip
    st.caption(
        "CV error: of measured rows that were predicted without themselves, mean over operators. tokens, decodes, context: the most that "
        "was measured in a step, of decodes at once, and of tokens behind each (of this machine's own: behind all)."
    )
    if chosen_rows := event["selection"]["rows"]:
        choices.change(PAGE, query, profile=found[chosen_rows[0]].name)
        st.rerun()


def _open(query: dict[str, str]) -> None:
    if name := st.session_state["calibrate:open"]:
        choices.change(PAGE, query, profile=name)
