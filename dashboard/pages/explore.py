"""Explore: a scenario, its knobs, and what comes of them."""

from __future__ import annotations

import streamlit as st

from dashboard import panel, parts, work
from studies import figures
from studies.reports import run_tables
from studies.reports.limits import NOT_MODELLED
from studies.reports.report import CDFS, cards
from studies.results import Run


def page() -> None:
    """The page: knobs at the side; what came of them, what binds, and the figures."""
    st.title("Explore")
    asked = panel.ask("explore")
    if asked.scenario is None:
        return
    job = parts.ask("explore", asked.scenario.hash(), work.simulate, asked.scenario)
    parts.follow(job, show)


def show(run: Run, complete: bool) -> None:
    """Cards, the sentence that names the bottleneck, figures and tables of one run."""
    st.caption(run_tables.heading(run))
    if not complete:
        st.warning("The beginning of the run; the whole of it is being simulated.")
    st.info(run.info["binding"]["sentence"])
    headlines = cards(run.summary)
    for row in (headlines[:4], headlines[4:]):
        for column, (value, text) in zip(st.columns(4), row, strict=False):
            column.metric(text, value, border=True)
    for line in run_tables.rejections(run):
        st.warning(line)
    for column, (metric, title) in zip(st.columns(3), CDFS, strict=True):
        with column:
            parts.figure(figures.latency_cdf(metric, {run.name: run.records}, run.slo), metric, title)
    blocks = run.info["engine"]["num_gpu_blocks"] - 1
    parts.figure(figures.load_over_time(run.records, blocks), "load", "Requests and KV memory")
    parts.figure(figures.batch_composition(run.records), "batches", "Batches")
    with st.expander("All figures as tables"):
        for table in run_tables.every(run):
            parts.table(table)
    with st.expander("What is not modelled"):
        st.markdown("\n".join(f"- {line}" for line in NOT_MODELLED))
