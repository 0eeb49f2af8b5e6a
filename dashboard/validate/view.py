"""One validation on a page: its verdict, what was predicted against what was measured, and the layers below."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import parts
from dashboard.markup import literal
from studies.figures import LATENCY_AXES, Figure
from studies.reports import html, tables
from studies.results import file_name
from studies.validations import figures
from studies.validations.record import Validation
from studies.validations.residuals import residuals

MEANING = {
    "pass": ("within 5 % or the noise of repeats", st.success),
    "fail": ("off by more than 5 % and the noise of repeats", st.error),
    "void": ("the machine was too unsteady to tell", st.warning),
}
"""Of a verdict, in words, and how it is shown."""


def headline(found: Validation) -> str:
    """The farthest of what decides the verdict, and how far repeats are apart."""
    rows = found.decisive()
    if not rows:
        return tables.DASH
    worst = rows[0]
    said = f"{tables.name(worst.metric)} {tables.percent(worst.error, signed=True)}"
    return f"{said} (noise {tables.percent(worst.noise)})" if worst.noise is not None else said


def show(found: Validation, folder: Path | None = None) -> None:
    """Everything about a validation. folder: that keeps it, if there is one."""
    st.header(literal(found.title), anchor=False)
    meaning, box = MEANING[found.verdict]
    said = literal(found.sentence)
    box(said if "Verdict" in said else f"{said}  \nVerdict: **{found.verdict}** ({meaning}).")
    st.caption(literal(f"{found.about}  \nMeasured on: {found.measured}."))
    drawn = _figures(found)
    for at in range(0, len(drawn), 2):
        for column, (title, figure) in zip(st.columns(2), drawn[at : at + 2], strict=False):
            with column:
                parts.figure(figure, f"validation:{title}", title)
    parts.figure(figures.errors(found), "validation:errors", ERRORS)
    left, right = st.columns(2)
    with left:
        if found.ranking is not None:
            parts.figure(figures.ranking(found), "validation:ranking", RANKING)
        else:
            st.markdown(f"**{RANKING}**")
            st.caption(found.absent.get("ranking", "Policies were not ranked in this validation."))
        if found.worst:
            parts.table(figures.worst_table(found))
    with right:
        if found.facts:
            parts.table(figures.facts_table(found))
    with st.expander(f"All {len(found.rows)} figures"):
        parts.table(figures.rows_table(found))
    if found.not_modelled:
        with st.expander("What is not modelled"):
            st.markdown("\n".join(f"- {literal(line)}" for line in found.not_modelled))
    _downloads(found, folder)


ERRORS, RANKING = "Signed errors beside the noise of repeats", "Order of policies"


def _figures(found: Validation) -> list[tuple[str, Figure]]:
    drawn: list[tuple[str, Figure]] = []
    for metric in figures.metrics(found):
        title = LATENCY_AXES[metric][0]
        drawn.append((f"{title}: predicted against measured", figures.scatter(found, metric)))
        if found.points:
            drawn.append((f"{title}: what is left", residuals(found, metric)))
    return drawn


def page_of(found: Validation) -> html.Page:
    """The same as a report."""
    drawn = [(title, figure, False) for title, figure in _figures(found)] + [(ERRORS, figures.errors(found), True)]
    if found.ranking is not None:
        drawn.append((RANKING, figures.ranking(found), True))
    shown = [figures.rows_table(found), figures.facts_table(found), figures.worst_table(found)]
    about = f"{found.about}\nMeasured on: {found.measured}."
    return html.Page(found.title, about, [html.Section("", found.sentence, (), [t for t in shown if t.rows], drawn)])


def _downloads(found: Validation, folder: Path | None) -> None:
    name = file_name(found.name)
    with st.container(horizontal=True):
        st.download_button(
            "JSON", lambda: found.model_dump_json(indent=1).encode(), f"{name}.json", "application/json",
            key="save:validation", on_click="ignore", icon=":material/download:", help="All figures, points and texts of this page.",
        )  # fmt: skip
        st.download_button(
            "Report (HTML)", lambda: html.render(page_of(found)), f"{name}.html", "text/html",
            key="save:validation:html", on_click="ignore", icon=":material/download:", help="This page as a file that opens without a network.",
        )  # fmt: skip
        report = None if folder is None else folder / "report.html"
        if report is not None and report.is_file() and not report.is_symlink():
            st.download_button(
                "Both runs (HTML)", report.read_bytes, f"{name}-runs.html", "text/html",
                key="save:validation:runs", on_click="ignore", icon=":material/download:",
                help="The report of `servetwin validate`: the executed run beside the simulated one.",
            )  # fmt: skip
