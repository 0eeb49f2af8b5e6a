"""The form that measures this machine's step costs, and the measurement while it goes on."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import streamlit as st

from dashboard import errands, workspace
from dashboard.calibrate import shelf as profile_shelf
from dashboard.calibrate import work as calibrate_work
from dashboard.choices import change, select
from dashboard.measurements import GRIDS, INSTALL, duration
from scenarios import InputError
from scenarios.models import CATALOG
from studies import calibrating

PAGE = "calibrate"
OF, SIZE, GRID, REPEATS = "of", "size", "grid", "times"
LARGEST = 2e9
"""Parameters of a model that a CPU measures in bearable time."""
SIZES: dict[str, tuple[str, ...]] = {
    "small": (
        "engine.max_num_seqs=16", "engine.max_num_batched_tokens=256", "engine.max_model_len=640", "engine.num_gpu_blocks=512",
    ),
    "medium": (),
}  # fmt: skip
"""Engines whose step shapes are measured, as changes of the usual one: that of the demo, and a larger one."""
TIMES = {"1": "once", "3": "3 times", "5": "5 times", "9": "9 times"}


def is_parameter(name: str) -> bool:
    """Whether a query parameter is one of the form."""
    return name in (OF, SIZE, GRID, REPEATS)


def form(query: Mapping[str, str]) -> None:
    """Asks what is measured, says how long it takes, and begins."""
    st.markdown(
        "Runs steps of all shapes that an engine may be asked for, prompts and batches of many sizes, on the CPU of this dashboard's "
        "machine, and fits step costs to them. Simulations with them answer for this machine."
    )
    if find_spec("torch") is None:
        st.warning(
            "Measuring needs the real engine, and torch is not installed where this dashboard runs. Install it there:"
        )
        st.code(INSTALL, language="sh")
        st.caption("Or measure elsewhere with `servetwin calibrate`, and import the profile that it writes.")
        return
    columns = st.columns(2)
    with columns[0]:
        model = select(
            PAGE,
            OF,
            "Model",
            _models(),
            query,
            help="Larger ones take longer, about as many times as they have parameters.",
        )
        grid = select(
            PAGE, GRID, "Step shapes", GRIDS, query,
            help="A fine grid takes three times as long and shows bends between its points.",
        )  # fmt: skip
    with columns[1]:
        size = select(
            PAGE, SIZE, "Engine", {name: _size(name) for name in SIZES}, query,
            help="Steps of up to so many requests and tokens are measured; a scenario that asks for more leaves the profile's domain.",
        )  # fmt: skip
        repeats = select(
            PAGE, REPEATS, "Each of them", TIMES, query, usual="3",
            help="The median counts. More repeats are steadier on a machine that does other things.",
        )  # fmt: skip
    name = st.text_input(
        "Called", key="calibrate:name", placeholder=f"{model}-cpu", max_chars=80,
        help=f"The profile is written to {profile_shelf.MADE}/NAME.json of the workspace.",
    )  # fmt: skip
    fineness: Literal["quick", "standard"] = "quick" if grid == "quick" else "standard"
    expected = calibrating.expected(calibrating.scenario_of(model, SIZES[size]), fineness, int(repeats))
    st.info(
        f"{expected.shapes} step shapes, {expected.steps:,} steps in all: about {duration(expected.seconds)} on one free core, longer on a busy "
        "one. It goes on while you look at other pages; until it is done nothing is written."
    )
    st.button(
        "Measure", type="primary", icon=":material/play_arrow:", disabled=errands.is_going(PAGE), on_click=_start,
        args=(model, fineness, int(repeats), SIZES[size], name.strip() or f"{model}-cpu"),
    )  # fmt: skip
    more = "".join(f" --set {change}" for change in SIZES[size]) + (" --quick" if grid == "quick" else "")
    st.caption("The same on a terminal:")
    st.code(
        f"servetwin calibrate --model {shlex.quote(model)}{more} --repeats {repeats}", language="sh", wrap_lines=True
    )


def running(query: Mapping[str, str]) -> None:
    """Draws what this reader began, while it goes on and when it has ended."""

    def draw(file: Path, complete: bool) -> None:
        st.success(f"Done: {workspace.relative(file)}.")

    def then(file: Path) -> None:
        icon = ":material/straighten:"
        st.button("Show it", on_click=_show, args=(file, dict(query)), type="primary", icon=icon)

    errands.box(PAGE, draw, then)


def _models() -> dict[str, str]:
    found = [spec for spec in CATALOG.values() if spec.parameters() <= LARGEST and not spec.num_experts]
    found.sort(key=lambda spec: spec.parameters())
    return {spec.name: f"{spec.name} ({spec.parameters() / 1e6:,.0f} M parameters)" for spec in found}


def _size(name: str) -> str:
    engine = calibrating.scenario_of("qwen3-tiny", SIZES[name]).engine
    return f"{name}: {engine.max_num_seqs} requests, {engine.max_num_batched_tokens:,} tokens a step, windows of {engine.max_model_len:,}"


def _start(model: str, grid: Literal["quick", "standard"], repeats: int, overrides: tuple[str, ...], name: str) -> None:
    try:
        file = profile_shelf.free(name)
    except InputError as error:
        st.session_state["calibrate.refused"] = str(error)
        return
    what = f"Measuring {model} on this machine"
    errands.begin(PAGE, what, calibrate_work.measure, model, grid, repeats, overrides, file)


def _show(file: Path, query: dict[str, str]) -> None:
    errands.close(PAGE)
    change(PAGE, query, part=None, profile=workspace.relative(file))
