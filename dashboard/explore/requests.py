"""Single requests of a run: bars by phase, and why one of them took so long."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import parts
from dashboard.explore import work
from dashboard.markup import message
from dashboard.numbers import whole
from studies.figures import gantt
from studies.results import Run

REQUEST = "request"
"""Query parameter: the request that is explained."""
SLOWEST = {
    "ttft": ("Slowest first token", "The largest TTFT"),
    "tpot": ("Slowest tokens", "The largest TPOT"),
    "e2el": ("Slowest answer", "The largest end-to-end latency"),
    "queue": ("Longest in the queue", "The longest from arrival to its first step"),
}
"""Buttons that choose a request: by figure, what each says and its help."""
METRICS = {
    "ttft": "its first token",
    "tpot": "its tokens",
    "e2el": "its whole answer",
    "queue": "its time in the queue",
}
_FIGURE = "gantt"
_EXPLAINED = "explained"
_ROWS = 36
"""Requests that are drawn: as many as leave a laptop's screen room for the explanation below."""


def show(run: Run) -> None:
    """The bars around a request, and in words what stood in its way."""
    last = len(run.records.requests["status"]) - 1
    request = _choose(run, last)
    around = request if request is not None and run.records.submitted[request] else gantt.slowest(run.records)
    found = gantt.requests(run.records, most=_ROWS, around=around)
    title = (
        f"Requests around number {around}" if request is not None else f"Requests around the slowest, number {around}"
    )
    parts.figure(found, _FIGURE, title, select="points", on_select=_clicked)
    st.caption("Click a bar to have its request explained, or choose one above.")
    if request is not None:
        _explain(run, request)


def _choose(run: Run, last: int) -> int | None:
    asked = st.query_params.get(REQUEST)
    strange = asked is not None and REQUEST not in st.session_state and whole(asked, 0, last) is None
    if asked is not None and strange:
        st.warning(message(f"{REQUEST}={asked[:40]}: there is no such request; there are 0 to {last:,}."))
    if (st.session_state.get(REQUEST) or 0) > last:
        st.session_state[REQUEST] = None  # of a longer run
    with st.container(horizontal=True, vertical_alignment="bottom", key="which-request"):
        request = st.number_input(
            "Request",
            0,
            last,
            None,
            1,
            key=REQUEST,
            bind=None if strange else "query-params",  # Streamlit fails on one that is infinite
            placeholder="a number",
            help="Requests are numbered from 0 as they are sent. The link keeps the number.",
            width=160,
        )
        for metric, (label, help) in SLOWEST.items():
            if (number := gantt.slowest(run.records, metric)) is not None:
                st.button(
                    label,
                    key=f"slowest:{metric}",
                    on_click=_take,
                    args=(number, metric),
                    help=f"{help}: request {number}.",
                )
    return None if request is None else int(request)


def _take(number: int, metric: str) -> None:
    """A request, and what it was chosen for is what is explained."""
    st.session_state[REQUEST] = number
    st.session_state[_EXPLAINED] = metric


def _clicked() -> None:
    points: list[Any] = st.session_state[_FIGURE]["selection"]["points"]
    if points and (told := points[0].get("customdata")):
        st.session_state[REQUEST] = int(told[0])


def _explain(run: Run, request: int) -> None:
    st.session_state.setdefault(_EXPLAINED, "ttft")
    metric = st.segmented_control(
        "Explain", list(METRICS), required=True, format_func=METRICS.__getitem__, key=_EXPLAINED
    )
    job = parts.ask("explain", (run.info["scenario_hash"], request, metric), work.explain, run, request, metric)
    parts.follow(job, _explained, "explaining")


def _explained(found: work.Explained, complete: bool) -> None:
    st.info(found.sentence)
    parts.table(found.table)
    st.caption(found.tail)
