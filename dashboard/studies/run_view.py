"""A kept run of the workspace on a page, as its report shows it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import parts
from dashboard.studies import cell_settings
from dashboard.studies.sweep_view import opened
from studies.reports import report, run_tables
from studies.results import Run


def show(run: Run, folder: Path) -> None:
    """Cards, what binds, figures and tables."""
    st.caption(run_tables.heading(run))
    if run.info.get("way") == "simulate" and st.button("Open its scenario in Explore", icon=":material/tune:"):
        opened(lambda: cell_settings.of_run(folder))
    if sentence := run.info["binding"].get("sentence"):
        st.info(sentence.replace("$", "\\$"))
    parts.cards(report.cards(run.summary), "run")
    drawn = report.figures_of(run)
    narrow = [each for each in drawn if not each[2]]
    for column, (title, figure, _) in zip(st.columns(max(len(narrow), 1)), narrow, strict=False):
        with column:
            parts.figure(figure, f"run:{title}", title)
    for title, figure, wide in drawn:
        if wide:
            parts.figure(figure, f"run:{title}", title)
    with st.expander("All figures as tables"):
        for table in run_tables.every(run):
            parts.table(table)
    with st.container(horizontal=True):
        parts.save_table(run.requests, f"{run.name}-requests")
