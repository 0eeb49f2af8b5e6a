"""What the capacity page shows of its answers: sentences, cards, figures, tables, and all of it to take away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from dashboard import parts
from dashboard.capacity.work import Chosen
from dashboard.markup import literal
from studies.capacity import (
    cheapest_figure,
    cheapest_report,
    fewest_report,
    figures,
    outline_report,
    report,
)
from studies.capacity.replicas import Fewest
from studies.capacity.search import Capacity
from studies.figures import LATENCY_AXES
from studies.reports import html
from studies.reports.strict_json import dumps
from studies.reports.tables import Table, number


def curve(found: Capacity, complete: bool) -> None:
    """The curve at a glance; while it comes, what there is."""
    if complete:
        st.info(literal(" ".join(outline_report.sentences(found))))
        parts.cards(outline_report.cards(found), "curve")
    _figures(found, outline_report.drawn(found), "curve" if complete else f"curve:{len(found.around)}")
    if complete:
        st.caption(literal("  \n".join((outline_report.taken(found), outline_report.BOUNDARY, outline_report.KNEE, outline_report.BANDS))))  # fmt: skip
        with st.container(horizontal=True):
            parts.save_table(lambda: outline_report.frame(found), "load-curve")


def highest(found: Capacity, complete: bool) -> None:
    """The answer with its curve; while the search goes on, what was decided so far."""
    if not complete:
        _so_far([(found.over.said(x), report.VERDICTS[tried.met], tried.why) for x, tried in found.tried.items()])
        return
    _answer(report.sentences(found), found.load is not None)
    page = report.page(found)
    parts.cards(page.sections[0].cards, "answer")
    _figures(found, outline_report.drawn(found), "answer")
    for table in (report.table(found), report.at_load(found)):
        if table is not None:
            _table(table)
    _files("capacity", report.to_dict(found), page, lambda: outline_report.frame(found))


def fewest(found: Fewest, complete: bool) -> None:
    """How many replicas, and what they cost."""
    if not complete:
        name = found.path.rpartition(".")[2]
        _so_far([(f"{name} {k}", report.VERDICTS[tried.met], tried.why) for k, tried in found.tried.items()])
        return
    _answer([*fewest_report.sentences(found), *fewest_report.per_token(found)], found.value is not None)
    page = fewest_report.page(found)
    parts.cards([*page.sections[0].cards, *_per_million(found)], "fewest")
    parts.figure(fewest_report.figure(found), "fewest", f"Objectives against {found.path}")
    _table(fewest_report.table(found))
    _files("fewest", fewest_report.to_dict(found), page)


def cheapest(chosen: Chosen, complete: bool) -> None:
    """Which device, the runner-up, and what was refused."""
    import yaml

    found = chosen.found
    if not complete:
        run = [j for j in found.judged if j.attainment is not None]
        _so_far(
            [
                (j.candidate.name.removeprefix("variant "), j.outcome, j.attainment.why if j.attainment else "")
                for j in run
            ]
        )
        return
    _answer([line.replace("variant ", "") for line in cheapest_report.sentences(found)], found.best is not None)
    page = cheapest_report.page(found)
    parts.cards(page.sections[0].cards, "cheapest")
    parts.figure(cheapest_figure.figure(found), "cheapest", "Cost against latency")
    listed, *refused = cheapest_report.found_tables(found, None)
    _table(listed)
    for table in refused:
        with st.expander(f"Refused: {len(table.rows)}"):
            st.markdown("\n".join(f"- {literal(row[0].removeprefix('variant '))}" for row in table.rows))
    _files("cheapest", cheapest_report.to_dict(found), page)
    st.download_button(
        "space.yaml",
        lambda: yaml.safe_dump(chosen.space, sort_keys=False, allow_unicode=True, width=1000),
        "space.yaml",
        "application/yaml",
        key="save:space",
        on_click="ignore",
        icon=":material/download:",
        help="The combinations, as `servetwin capacity --cheapest space.yaml` reads them.",
    )


def _answer(sentences: Sequence[str], there: bool) -> None:
    first, *others = sentences
    (st.success if there else st.warning)(literal(first))
    if others:
        st.markdown("  \n".join(literal(line) for line in others))


def _so_far(rows: Sequence[tuple[str, str, str]]) -> None:
    """What a search knows while it goes on, the latest first."""
    marks = {"met": ":material/check:", "not met": ":material/close:"}
    lines = [
        f"- {marks.get(verdict, ':material/question_mark:')} {literal(name)}: {verdict}{f' ({literal(why)})' if why else ''}"
        for name, verdict, why in reversed(rows)
    ]
    st.markdown("\n".join(lines[:12]))


def _per_million(found: Fewest) -> list[tuple[str, str]]:
    usd = fewest_report.usd_per_million(found)
    return [] if usd is None else [(number(usd), "USD per 1M output tokens")]


def _figures(found: Capacity, metrics: Sequence[str], key: str) -> None:
    drawn: list[tuple[str, Any]] = [
        (f"{LATENCY_AXES[metric][0]} against load", figures.latency(found, metric)) for metric in metrics
    ]
    drawn.append(("Throughput and goodput against load", figures.throughput(found)))
    for k in range(0, len(drawn), 2):
        row = drawn[k : k + 2]
        for column, (title, one) in zip(st.columns(len(row)), row, strict=True):
            with column:
                parts.figure(one, f"{key}:{title}", title)


def _table(found: Table) -> None:
    """A table that scrolls sideways where it is wide."""
    if found.title:
        st.markdown(f"**{found.title}**")
    st.dataframe(
        [dict(zip((name or " " for name in found.head), row, strict=True)) for row in found.rows],
        hide_index=True,
        width="stretch",
    )
    if found.note:
        st.caption(literal(found.note.replace("\n", "  \n")))


def _files(name: str, data: dict[str, Any], page: html.Page, frame: Callable[[], Any] | None = None) -> None:
    """Downloads of what the command line writes."""
    with st.container(horizontal=True):
        for label, mime, make in (
            (f"{name}.html", "text/html", lambda: html.render(page)),
            (f"{name}.json", "application/json", lambda: dumps(data) + "\n"),
        ):
            st.download_button(
                label,
                make,
                label,
                mime,
                key=f"save:{label}",
                on_click="ignore",
                icon=":material/download:",
                help="As `servetwin capacity --out` writes it.",
            )
        if frame is not None:
            parts.save_table(frame, name)
