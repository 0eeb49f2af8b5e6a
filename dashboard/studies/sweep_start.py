"""The form that starts a small study of the present scenario, and the study while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard import errands, knobs, page_query, parts, workspace
from dashboard.choices import select
from dashboard.knobs import Choice, Knob
from dashboard.markup import message
from dashboard.numbers import whole
from dashboard.settings import Settings
from dashboard.studies import sweep_form
from dashboard.studies import work as sweep_work
from dashboard.studies.sweep_form import MOST_SEEDS, NONE_VARIED, Begun
from dashboard.studies.sweep_view import PAGE
from scenarios import InputError, Scenario
from studies.reports import tables
from studies.sweeps import figures
from studies.sweeps.results import Sweep
from studies.sweeps.run import Plan

VARY, VALUES, VARY2, VALUES2, SEEDS, INTO = "vary", "values", "vary2", "values2", "seeds", "into"
USUAL = "workload.arrivals.rate"


def is_parameter(name: str) -> bool:
    """Whether a query parameter is one of the form."""
    return name in (VARY, VALUES, VARY2, VALUES2, SEEDS, INTO)


def form(settings: Settings, query: Mapping[str, str]) -> None:
    """Asks what is varied, and starts it."""
    try:
        scenario = settings.scenario()
    except InputError as error:
        st.warning(message(f"The present scenario cannot be run, which Explore mends: {error}"))
        return
    changes = len(settings.changes) + (settings.trace is not None)
    changed = f" with {changes} change{'s' * (changes > 1)}" if changes else ""
    st.caption(f"Of the scenario that is set on Explore now: **{settings.named()}**{changed}.")
    axes: dict[str, list[Any]] = {}
    try:
        first = _axis(scenario, query, VARY, VALUES, "Vary", None)
        _take(axes, first)
        _take(axes, _axis(scenario, query, VARY2, VALUES2, "And vary", first[0]))
        left, right = st.columns(2)
        with left:
            seeds = _seeds(query)
        planned = sweep_form.planned(settings, axes, seeds)
    except InputError as error:
        st.error(message(error))
        return
    with right:
        usual = sweep_form.name_of(settings, axes)
        name = _typed(INTO, "Called", usual, query, f"Name of its folder in {sweep_form.FOLDER} of the workspace.")
    cells, refused = len(planned.cells), len(planned.refused)
    if refused:
        st.warning(
            f"{refused} of {cells} cells cannot be run and become failed rows; the first: {planned.refused[min(planned.refused)]}"
        )
    st.button(
        f"Run {cells} cells",
        type="primary",
        icon=":material/play_arrow:",
        disabled=errands.is_going(PAGE),
        on_click=_start,
        args=(planned, name),
        help=f"{tables.number(cells // seeds)} points x {seeds} seeds, in processes of this server. Each cell is kept as it finishes.",
    )
    if told := st.session_state.pop("studies.refused", ""):
        st.error(message(told))


def running() -> bool:
    """Draws the study that this reader started, while it runs and when it has ended. Whether there is one."""
    found = errands.of(PAGE)
    if found is None:
        return False
    begun: Begun = found.about
    with st.container(border=True):
        st.markdown(f"**{begun.folder}**")
        if found.job.state == "cancelled":
            st.info("Cancelled. Cells that are finished are kept; Go on runs the others.")
            _command(begun)
            with st.container(horizontal=True):
                st.button("Go on", on_click=go_on, args=(begun,), icon=":material/play_arrow:")
                _ways_out(begun)
            return True
        drawn = 0

        def draw(sweep: Sweep, complete: bool) -> None:
            nonlocal drawn
            drawn += 1
            if complete:
                failed = f", {sweep.failed} of them failed" if sweep.failed else ""
                st.success(f"All {len(sweep.rows)} cells are done{failed}.")
            else:
                _partly(sweep, drawn)

        if not found.job.ended:
            _command(begun)
        parts.follow(found.job, draw, "starting")
        if found.job.ended:
            with st.container(horizontal=True):
                _ways_out(begun)
    return True


def go_on(begun: Begun) -> None:
    """Runs what a study's folder has not yet."""
    top = workspace.folder()
    errands.begin(PAGE, begun, sweep_work.sweep, top / begun.file, top / begun.folder)


def _start(planned: Plan, name: str) -> None:
    try:
        begun = sweep_form.write(planned, name)
    except InputError as error:
        st.session_state["studies.refused"] = str(error)
        return
    go_on(begun)


def _ways_out(begun: Begun) -> None:
    st.button("Open it", on_click=_open, args=(begun.folder,), icon=":material/grid_view:", type="primary")
    st.button("Close", on_click=errands.close, args=(PAGE,))


def _open(folder: str) -> None:
    errands.close(PAGE)
    page_query.change(PAGE, {"folder": folder})


def _command(begun: Begun) -> None:
    st.caption("On a terminal, in the workspace, this goes on with it, wherever it was stopped:")
    st.code(begun.command, language="sh", wrap_lines=True)


def _partly(sweep: Sweep, count: int) -> None:
    """What the finished cells say already."""
    st.caption(f"{len(sweep.rows)} of {len(sweep.rows) + sweep.missing} cells so far.")
    metrics = sweep.metrics()[:2]
    for place, (column, (title, figure, _)) in enumerate(
        zip(st.columns(2), figures.drawn(sweep, metrics)[:2] if metrics else [], strict=False)
    ):
        with column:
            parts.figure(figure, f"partly:{count}:{place}", title)


def _axis(
    scenario: Scenario, query: Mapping[str, str], vary: str, typed: str, label: str, taken: Knob | None
) -> tuple[Knob | None, list[Any]]:
    """A knob and its values; none where none is chosen.

    Raises:
        InputError: a value is none that it can have.
    """
    offered = {knob.path: knob for knob in knobs.of(scenario) if knob.path != "seed" and knob != taken}
    words = {path: f"{knob.group}: {knob.label}" for path, knob in offered.items()}
    usual = USUAL if USUAL in offered else next(iter(offered))
    if taken is not None:
        words, usual = {NONE_VARIED: "nothing else"} | words, NONE_VARIED
    left, right = st.columns(2)
    with left:
        chosen = select(PAGE, vary, label, words, query, usual=usual, drops=(typed,))
    if chosen == NONE_VARIED:
        return None, []
    knob = offered[chosen]
    with right:
        text = _typed(typed, _values_label(knob), sweep_form.usual(knob), query, _values_help(knob))
    return knob, sweep_form.values(knob, text)


def _values_label(knob: Knob) -> str:
    unit = getattr(knob.control, "unit", "").strip()
    return f"Values of {knob.label.lower()}" + (f" ({unit})" if unit else "")


def _values_help(knob: Knob) -> str:
    if isinstance(knob.control, Choice):
        return "With commas between: " + ", ".join(f"`{text}`" for text in knob.control.options)
    return "With commas between."


def _take(axes: dict[str, list[Any]], axis: tuple[Knob | None, list[Any]]) -> None:
    knob, values = axis
    if knob is not None:
        axes[knob.path] = values


def _seeds(query: Mapping[str, str]) -> int:
    text = query.get(SEEDS, "3")
    wanted = whole(text, 1, MOST_SEEDS)
    if wanted is None:
        st.warning(message(f"{SEEDS}={text[:40]}: found no whole number from 1 to {MOST_SEEDS}; 3 are taken."))
        wanted = 3
    key = f"own:{SEEDS}"
    if st.session_state.get(key) != wanted:
        st.session_state[key] = wanted
    return st.number_input(
        "Seeds of each point",
        1,
        MOST_SEEDS,
        key=key,
        on_change=_changed,
        args=(SEEDS, "3"),
        help="Five and more give intervals. More seeds narrow them, and take as many times longer.",
    )


def _typed(name: str, label: str, usual: str, query: Mapping[str, str], help: str) -> str:
    text = query.get(name, usual)
    key = f"own:{name}"
    if st.session_state.get(key) != text:
        st.session_state[key] = text
    st.text_input(label, key=key, on_change=_changed, args=(name, usual), help=help, max_chars=500)
    return text


def _changed(name: str, usual: str) -> None:
    found = str(st.session_state[f"own:{name}"]).strip()
    others = {each: text for each, text in page_query.held(PAGE).items() if each != name}
    page_query.change(PAGE, others if found in (usual, "") else others | {name: found})
