"""Capacity: how much load a deployment carries within its objectives, and what carries a given load, for how much money."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from dashboard import page_query, panel
from dashboard.capacity import controls
from dashboard.capacity import query as capacity_query
from dashboard.capacity import view as capacity_view
from dashboard.capacity import work as capacity_work
from dashboard.capacity.query import OVER, OWN, Question
from dashboard.capacity.steps import step
from dashboard.markup import message
from dashboard.settings import Settings
from scenarios import InputError

PAGE = "capacity"


def page() -> None:
    """The page: what is asked; the curve at once; then answers that take longer, each by a button."""
    st.title("Capacity")
    query = page_query.current(PAGE, lambda name: name in OWN)
    asked = panel.ask(PAGE, query)
    if asked.valid is None:
        return
    settings, scenario = asked.valid
    if asked.scenario is None:
        st.caption("Below is what the last settings that fit together carry.")
    controls.limits(PAGE, query, scenario)
    try:
        question = capacity_query.read(query, scenario)
    except InputError as error:
        st.error(message(str(error).replace("--over ", "over ")))
        return
    for line in question.told:
        st.warning(message(line))
    # All of the page first, then what takes time: it can be read, and changed, while that is going on.
    for follow in (_curve(question), _highest(settings, query, question), *_target(settings, query, question)):
        follow()


def _curve(asked: Question) -> Callable[[], None]:
    st.subheader("Latency, throughput and goodput against load", anchor="curve")
    return step("capacity:curve", asked.key, capacity_work.curve, asked, capacity_view.curve)


def _highest(settings: Settings, query: dict[str, str], asked: Question) -> Callable[[], None]:
    st.subheader("How much it carries", anchor="highest")
    found = step(
        "capacity:highest",
        asked.key,
        capacity_work.highest,
        asked,
        capacity_view.highest,
        "Find the highest load",
        f"The curve is a picture; this decides. Loads are tried by doubling and halving, each under as many seeds and in runs as long as it "
        f"takes to tell at {asked.confidence:.0%} confidence. Half a minute to several minutes; it can be cancelled.",
    )
    _command(settings, asked, *(["--over", asked.load.path] if query.get(OVER) else []), "--out", "capacity")
    return found


def _target(settings: Settings, query: dict[str, str], asked: Question) -> list[Callable[[], None]]:
    st.subheader("What carries a target", anchor="target")
    controls.target(PAGE, query, asked)
    key = (*asked.key, asked.target)
    load = _sets(asked)
    replicas = step(
        "capacity:fewest",
        (*key, asked.size),
        capacity_work.fewest,
        asked,
        capacity_view.fewest,
        "How many replicas?",
        f"The fewest replicas of the scenario's own device that carry {asked.load.said(asked.target)} within the objectives, and their price.",
    )
    _command(settings, asked, *load, "--fewest", asked.size, "--out", "fewest")
    controls.devices(PAGE, query, asked)
    best = step(
        "capacity:cheapest",
        (*key, asked.devices, asked.precisions, asked.parallel),
        capacity_work.cheapest,
        asked,
        capacity_view.cheapest,
        "Which is cheapest?",
        "Every combination of these, each with the replicas that it may take, from the cheapest on, until two are known to carry the target: "
        "the best and its runner-up. Minutes; it can be cancelled. Other precisions may answer worse, which is not judged here.",
    )
    _command(settings, asked, *load, "--cheapest", "space.yaml", "--out", "cheapest")
    return [replicas, best]


def _sets(asked: Question) -> list[str]:
    """Options that make the scenario's load the target."""
    if asked.target == asked.load.start:
        return []
    return [word for path, value in capacity_query.at_target(asked) for word in ("--set", f"{path}={value}")]


def _command(settings: Settings, asked: Question, *more: str) -> None:
    with st.expander("The same on the command line"):
        st.code(capacity_query.command(settings, asked, *more), language="bash", wrap_lines=True)
        if capacity_query.is_uploaded(settings):
            st.caption("With the uploaded files beside it.")
