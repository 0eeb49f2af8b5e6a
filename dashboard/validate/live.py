"""The form that executes the present scenario and holds it against its simulation, and the execution while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

import streamlit as st

from dashboard import address, errands, workspace
from dashboard.choices import change, select
from dashboard.markup import literal, message
from dashboard.measurements import GRIDS, INSTALL, duration
from dashboard.settings import DEFAULT, Settings
from dashboard.validate import shelf as validation_shelf
from dashboard.validate import view as validation_view
from dashboard.validate import work as validate_work
from dashboard.validate.work import Done
from scenarios import InputError, Scenario

PAGE = "validate"
REQUESTS, REPEATS, GRID, RANKED = "requests", "repeats", "grid", "ranked"
COUNTS = {"20": "first 20", "50": "first 50", "100": "first 100", "200": "first 200", "500": "first 500"}
TIMES = {"1": "once: no noise is known", "2": "twice", "3": "3 times", "5": "5 times"}
ORDERS = {"no": "no", "yes": "yes: each policy is executed twice"}


def is_parameter(name: str) -> bool:
    """Whether a query parameter is one of the form."""
    return name in (REQUESTS, REPEATS, GRID, RANKED)


def form(settings: Settings, query: Mapping[str, str]) -> None:
    """Asks how much is executed, says how long it takes, and begins; or says why it cannot."""
    st.markdown(
        "Really executes the scenario that is set on Explore on the CPU of this dashboard's machine, every step computed, measures step costs "
        "between these steps, simulates the same requests with them, and shows how far apart the two are."
    )
    if find_spec("torch") is None:
        st.warning(
            "Executing needs the real engine, and torch is not installed where this dashboard runs. Install it there:"
        )
        st.code(INSTALL, language="sh")
        return
    try:
        scenario = settings.scenario()
    except InputError as error:
        st.warning(message(f"The present scenario does not fit together, which Explore mends: {error}"))
        _demo(settings)
        return
    changes = len(settings.changes) + (settings.trace is not None)
    st.markdown(
        f"Scenario: **{literal(settings.named())}**"
        + (f" with {changes} change{'s' * (changes > 1)}" if changes else "")
    )
    if (why := validate_work.unfit(scenario)) is not None:
        st.warning(message(f"This scenario cannot be executed here. {why}"))
        _demo(settings)
        return
    _ask(scenario, query)


def _ask(scenario: Scenario, query: Mapping[str, str]) -> None:
    left, right = st.columns(2)
    with left:
        requests = int(
            select(PAGE, REQUESTS, "Requests", COUNTS, query, usual="20", help="More say more, and take longer.")
        )
        repeats = int(
            select(
                PAGE,
                REPEATS,
                "Executed",
                TIMES,
                query,
                usual="3",
                help="What repeats differ by is the noise that errors are held against.",
            )
        )
    with right:
        coarse = (
            select(
                PAGE, GRID, "Step shapes that are measured", GRIDS, query, help="A fine grid takes three times as long."
            )
            == "quick"
        )
        ranking = (
            select(
                PAGE,
                RANKED,
                "Rank policies too",
                ORDERS,
                query,
                help="Batchings with and without prefix cache: does the simulation order them as the machine does?",
            )
            == "yes"
        )
    grid: Literal["quick", "standard"] = "quick" if coarse else "standard"
    try:
        seconds = validate_work.seconds(scenario, requests, repeats, grid, ranking)
    except InputError as error:
        st.error(message(str(error)))
        return
    st.info(
        f"About {duration(seconds)} on one free core, longer on a busy one. It goes on while you look at other pages. The clock counts what the "
        "core works on steps, so other programs disturb little; if repeats differ by more than 10 % the verdict says that the machine was too "
        "unsteady to tell."
    )
    st.button(
        "Execute and compare", type="primary", icon=":material/play_arrow:", disabled=errands.is_going(PAGE), on_click=_start,
        args=(scenario, requests, repeats, grid, ranking),
    )  # fmt: skip


def running(query: Mapping[str, str]) -> None:
    """Draws what this reader began, while it goes on and when it has ended."""

    def then(done: Done) -> None:
        name = workspace.relative(done.folder)
        st.button("Its own page", icon=":material/fact_check:", on_click=_open, args=(name, dict(query)))

    errands.box(PAGE, _done, then)


def _done(done: Done, complete: bool) -> None:
    st.caption(f"Kept in {workspace.relative(done.folder)}.")
    validation_view.show(done.found, done.folder)


def _demo(settings: Settings) -> None:
    if settings != Settings(DEFAULT):
        st.button(
            "Take the demo", icon=":material/science:", on_click=address.change, args=(Settings(DEFAULT),),
            help="A chat service on one CPU core, small enough to be executed here. It becomes the scenario on Explore too.",
        )  # fmt: skip


def _start(scenario: Scenario, requests: int, repeats: int, grid: Literal["quick", "standard"], ranking: bool) -> None:
    try:
        folder = validation_shelf.free(scenario.name)
    except InputError as error:
        st.session_state["validate.refused"] = str(error)
        return
    what = f"{scenario.name}: executed against simulated"
    errands.begin(PAGE, what, validate_work.live, scenario, requests, repeats, grid, ranking, folder)


def _open(name: str, query: dict[str, str]) -> None:
    errands.close(PAGE)
    change(PAGE, query, part=None, validation=name)
