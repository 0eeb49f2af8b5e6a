"""What there is to see of a run, a view at a time: so that a turn of a knob draws what is looked at, and no more."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from dashboard import parts
from dashboard.explore import downloads
from dashboard.explore import requests as requests_view
from dashboard.settings import Settings
from studies import figures
from studies.reports import run_tables
from studies.reports.limits import NOT_MODELLED
from studies.reports.report import CDFS
from studies.results import Run

VIEW = "view"
"""Query parameter: which view."""
HELD = "baseline"
DOWNLOADS = "Downloads"


def choose() -> str:
    """The control that says what is looked at."""
    asked = st.query_params.get(VIEW)
    if asked is not None and asked not in VIEWS and VIEW not in st.session_state:
        st.warning(
            f"{VIEW}={asked}: there is no such view; there are {', '.join(VIEWS)}. Shown instead: {next(iter(VIEWS))}."
        )
    found = st.segmented_control(
        "What to look at",
        list(VIEWS),
        default=next(iter(VIEWS)),
        required=True,
        key=VIEW,
        bind="query-params",
        label_visibility="collapsed",
    )
    return str(found)


def show(view: str, settings: Settings, run: Run, compared: Run | None) -> None:
    """One view of a run. settings: that it is of. compared: the baseline, drawn behind it."""
    if view == DOWNLOADS:
        assert run.scenario is not None
        downloads.show(settings, run.scenario, run)
    else:
        VIEWS[view](run, compared)


def beginning(run: Run, compared: Run | None) -> None:
    """What there is to see while the rest of the run is being simulated."""
    _latency(run, compared, "begun:")


def _latency(run: Run, compared: Run | None, prefix: str = "") -> None:
    runs = {run.name: run.records} | ({} if compared is None else {HELD: compared.records})
    for column, (metric, title) in zip(st.columns(3), CDFS, strict=True):
        with column:
            parts.figure(figures.latency_cdf(metric, runs, run.slo, HELD), f"{prefix}{metric}", title)
    blocks = None if run.info.get("pools") else run.info["engine"]["num_gpu_blocks"] - 1
    parts.figure(figures.load_over_time(run.records, blocks), f"{prefix}load", "Requests and KV memory")


def _batches(run: Run, compared: Run | None) -> None:
    parts.figure(figures.batch_composition(run.records), "batches", "Batches")
    spent = run.info["binding"].get("terms") or {}
    if spent:
        st.caption(
            "Busy time: "
            + ", ".join(f"{name} {100 * share:.0f} %" for name, share in spent.items() if share >= 0.01)
            + "."
        )


def _tables(run: Run, compared: Run | None) -> None:
    st.caption(run_tables.heading(run).replace("$", "\\$"))
    for line in run_tables.about(run):
        st.caption(line.replace("$", "\\$"))
    for table in run_tables.every(run):
        parts.table(table)
    with st.expander("What is not modelled"):
        st.markdown("\n".join(f"- {line}" for line in NOT_MODELLED))


def _requests(run: Run, compared: Run | None) -> None:
    if not np.any(run.records.submitted):
        st.info("No request was sent, so there is none to look at.")
        return
    requests_view.show(run)


VIEWS: dict[str, Callable[[Run, Run | None], None]] = {
    "Latency and load": _latency,
    "Batches": _batches,
    "Requests": _requests,
    "Tables": _tables,
    DOWNLOADS: lambda run, compared: None,
}
"""By name, as the link has it."""
