"""Explore: a scenario, its knobs, and what comes of them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import panel, parts
from dashboard.explore import baseline, cards, differences, question_card, work
from dashboard.explore import requests as requests_view
from dashboard.explore import views as run_views
from dashboard.jobs import Job
from dashboard.markup import literal, message
from dashboard.settings import Settings
from scenarios import Scenario
from studies.reports import run_tables
from studies.results import Run

OWN = (baseline.PARAMETER, run_views.VIEW, requests_view.REQUEST)
NAMED = 6
"""Differences from the baseline that are named one by one."""


def page() -> None:
    """The page: knobs at the side; what came of them, what binds, and the figures."""
    st.title("Explore")
    baseline.read("explore")
    asked = panel.ask("explore", OWN, begin=_simulated)
    if asked.valid is None:
        return
    settings, scenario = asked.valid
    if asked.scenario is None:
        st.caption("Below is what the last settings gave that fit together.")
    question_card.show(asked.settings)
    held, told = baseline.held(settings)
    for line in told:
        st.warning(message(line))
    _against(held, settings)
    other = None
    if held is not None:
        other = parts.ask("explore.baseline", (held.scenario.hash(), held.scenario.name), work.simulate, held.scenario)
    job = _simulated(scenario)
    drawn: list[bool] = []

    def draw(run: Run, complete: bool) -> None:
        compared = _ready(other)
        drawn.append(compared is not None)
        show(settings, run, complete, compared)

    parts.follow(job, draw)
    if other is not None and drawn and not drawn[-1]:
        _follow_up(other)


def _simulated(scenario: Scenario) -> Job:
    return parts.ask("explore", (scenario.hash(), scenario.name), work.simulate, scenario)


def _ready(job: Job | None) -> Run | None:
    """The baseline's run if it is there, or comes at once."""
    if job is None:
        return None
    parts.ended(job, 0.4)
    return job.result if job.state == "done" else None


def _follow_up(job: Job) -> None:
    """Waits for the baseline, then shows everything against it."""
    with st.spinner("simulating the baseline"):
        while not parts.ended(job):
            pass
    if job.state == "done":
        st.rerun()
    st.warning(message(f"The baseline has no result: {job.error or job.state}"))


def _against(held: baseline.Baseline | None, settings: Settings) -> None:
    """What the figures are compared with, and the buttons that decide it."""
    with st.container(horizontal=True, vertical_alignment="center", key="against"):
        if held is None:
            said = (
                "This is the baseline."
                if baseline.is_pinned()
                else "The scenario as it is. Turn a knob to see what changes."
            )
        else:
            name = "the pinned baseline" if held.pinned else f"{settings.named()} as it is"
            lines = differences.between(settings, held.settings)
            more = len(lines) - NAMED
            said = f"Against {name}: " + ("; ".join(lines[:NAMED]) or "no setting that has a name differs")
            said += f"; and {more} more." if more > 0 else "."
        st.caption(said.replace("$", "\\$"), width="stretch")
        baseline.buttons(settings)


def show(settings: Settings, run: Run, complete: bool, compared: Run | None) -> None:
    """The sentence that names the bottleneck, cards, figures and tables of one run."""
    if not complete:
        st.warning("The beginning of the run; the whole of it is being simulated.")
    st.info(literal(run.info["binding"]["sentence"]))
    _cards(run, compared, "explore" if complete else "begun")
    for line in run_tables.rejections(run):
        st.warning(message(line))
    if complete:
        run_views.show(run_views.choose(), settings, run, compared)
    else:
        run_views.beginning(run, compared)


def _cards(run: Run, compared: Run | None, key: str) -> None:
    with parts.row_of_cards(key):
        for card in cards.cards(run, compared):
            more: dict[str, Any] = {"delta_arrow": "off"} if card.change == "same" else {}
            st.metric(
                literal(card.label),
                literal(card.value),
                card.change or None,
                delta_color=card.colour,
                help=card.help.replace("$", "\\$"),
                border=True,
                width="stretch",
                **more,
            )
