"""A study of the workspace on a page: figures, points with intervals, what failed, what was asked and answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from dashboard import opening, page_query, parts
from dashboard.choices import select
from dashboard.markup import literal, message
from dashboard.settings import Settings
from dashboard.studies import cell_settings
from dashboard.studies.sweep_figures import HEAT, LINES, NONE, PARALLEL, VIEWS, Shape
from scenarios import InputError
from studies import expectations, questions
from studies.reports import tables
from studies.statistics.directions import better
from studies.sweeps import page as pages
from studies.sweeps import tables as of_sweeps
from studies.sweeps.results import METRICS, Outcome, Sweep
from studies.sweeps.tables import value

PAGE = "studies"
FOLDER, METRIC, VIEW, X, Y, AT = "folder", "metric", "view", "x", "y", "at."
MOST_METRICS = 8
ROOM = """<style>
.st-key-wide-figure {overflow-x: auto}
.st-key-wide-figure [data-testid="stElementContainer"]:has(.js-plotly-plot), .st-key-wide-figure .stPlotlyChart {min-width: 760px}
</style>"""
"""Parallel coordinates need more than a telephone's width: they are moved sideways there."""


def is_parameter(name: str) -> bool:
    """Whether a query parameter is about how a study is looked at."""
    return name in (FOLDER, METRIC, VIEW, X, Y) or name.startswith(AT)


def show(sweep: Sweep, query: Mapping[str, str]) -> None:
    """Everything about a study. query: parameters of the page."""
    st.caption(pages.counted(sweep))
    if sweep.study.question:
        _asked(sweep)
    if not sweep.rows:
        st.info("No cell is finished yet.")
        return
    metrics = _metrics(sweep, query)
    shape = Shape(sweep, metrics)
    views = shape.views()
    if views:
        _drawn(shape, views, query)
    elif sweep.failed == len(sweep.rows):
        st.error("Every cell failed: see below.")
    _points(shape)
    if sweep.failed:
        parts.table(of_sweeps.failures(sweep))
    _expected(sweep)


def _asked(sweep: Sweep) -> None:
    """The study's question, and what its file answers."""
    st.markdown(f"**{literal(sweep.study.question)}**")
    if sweep.study.answer:
        with st.expander("The answer that the study states"):
            st.markdown(literal(sweep.study.answer))
            if sweep.study.assumes:
                st.caption(f"It takes for granted: {literal(sweep.study.assumes)}")


def _metrics(sweep: Sweep, query: Mapping[str, str]) -> tuple[str, ...]:
    """Figures to show, as the link names them, with commas between."""
    usual = [key for key in sweep.metrics() if key in sweep.keys] or list(sweep.keys[:1])
    wanted = [key for key in query.get(METRIC, "").split(",") if key]
    strange = [key for key in wanted if key not in sweep.keys]
    for key in strange:
        st.warning(message(f"{METRIC}={_short(key)}: no cell of this study has such a figure."))
    chosen = [key for key in wanted if key not in strange][:MOST_METRICS] or usual
    if st.session_state.get("own:metric") != chosen:
        st.session_state["own:metric"] = chosen
    known = [key for key in METRICS if key in sweep.keys]
    st.multiselect(
        "Figures",
        [*known, *sorted(set(sweep.keys) - set(known), key=_by_words)],
        format_func=tables.label,
        key="own:metric",
        max_selections=MOST_METRICS,
        on_change=_metrics_chosen,
        args=(usual,),
        help="What is drawn and tabled; the first one colours parallel coordinates.",
    )
    return tuple(chosen)


def _by_words(key: str) -> tuple[bool, str]:
    """Figures of the whole run before those of classes and tenants."""
    return key.startswith("by_"), tables.label(key).lower()


def _metrics_chosen(usual: list[str]) -> None:
    chosen = st.session_state["own:metric"]
    others = {name: text for name, text in page_query.held(PAGE).items() if name != METRIC}
    page_query.change(PAGE, others if not chosen or chosen == usual else others | {METRIC: ",".join(chosen)})


def _drawn(shape: Shape, views: list[str], query: Mapping[str, str]) -> None:
    """The figures of the chosen view; a click on a point opens it."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        view = select(PAGE, VIEW, "View", {name: VIEWS[name] for name in views}, query)
        x, y = NONE, NONE
        words = shape.names | {NONE: "none"}
        if view in (LINES, HEAT):
            across = shape.along() if view == LINES else list(shape.values)
            # A heat map of a study lies as the report's does: its first axis is across.
            usual = across[0]
            x = (
                usual
                if len(across) == 1
                else select(PAGE, X, "Along", {a: words[a] for a in across}, query, usual=usual)
            )
            others = shape.across(x) if view == LINES else [name for name in shape.values if name != x]
            y = (
                others[0]
                if len(others) == 1
                else select(
                    PAGE, Y, "A line for each" if view == LINES else "Upwards", {a: words[a] for a in others}, query
                )
            )
        rest = shape.rest(x, y) if view in (LINES, HEAT) else {}
        chosen = {}
        for name, found in rest.items():
            options = {value(v): value(v) for v in found}
            chosen[name] = select(PAGE, f"{AT}{name}", words[name], options, query)
    st.caption(_reading(view, shape))
    drawn = shape.drawn(view, x, y, chosen)
    if not drawn:
        st.info("No point with these values has a figure.")
    wide = [each for each in drawn if each[2]]
    if wide:
        st.html(ROOM)
    for title, figure, _ in wide:
        with st.container(key="wide-figure"):
            parts.figure(figure, f"wide:{view}", title)
    narrow = [each for each in drawn if not each[2]]
    for start in range(0, len(narrow), 2):
        for column, (title, figure, _) in zip(st.columns(2), narrow[start : start + 2], strict=False):
            with column:
                event = parts.figure(figure, f"{view}:{title}", title, select="points")
                if (point := shape.clicked(figure, event.get("selection", {}))) is not None:
                    _open(shape.sweep, point)


def _reading(view: str, shape: Shape) -> str:
    key = shape.keys[0]
    if view == HEAT:
        return "Means over seeds; the brighter the better. Click a cell to open its scenario in Explore."
    if view == PARALLEL:
        brighter = "; the brighter the better" if better(key) else ""
        return f"A line is a point. Drag along an axis to pick values{brighter}. Click a dot below to open its scenario in Explore."
    bands = "bands" if view == LINES else "bars"
    return (
        f"Means over seeds; {bands} are 95 % intervals of these means. Click a point to open its scenario in Explore."
    )


def _points(shape: Shape) -> None:
    """The table with intervals, whose heads sort it; a chosen row opens in Explore."""
    sweep = shape.sweep
    st.subheader("Points", anchor=False)
    rows, columns = [], {}
    banded = {key for key in shape.metrics if any(o.figures[key].half_width is not None for o in shape.every)}
    for outcome in shape.every:
        row: dict[str, object] = {shape.names[axis]: _cell(v) for axis, v in outcome.point.values.items()}
        for key in shape.metrics:
            figure = outcome.figures[key]
            row[tables.label(key)] = figure.estimate
            if key in banded:
                row[f"± {tables.label(key)}"] = figure.half_width
        rows.append(row | ({"failed": len(outcome.errors)} if sweep.failed else {}))
    for key in shape.metrics:
        for name in (tables.label(key), f"± {tables.label(key)}"):
            columns[name] = st.column_config.NumberColumn(name, format="%.4g")
    event = st.dataframe(
        rows,
        hide_index=True,
        column_config=columns,
        on_select="rerun",
        selection_mode="single-row",
        placeholder=tables.DASH,
        key="points",
        alt=f"A row a point: {', '.join(rows[0])}.",
    )
    none = "" if banded else f" There is none here: {_why_none(shape)}."
    st.caption(
        f"± is half of the 95 % interval of the mean over seeds.{none} A head sorts; a row that is ticked opens in Explore."
    )
    with st.container(horizontal=True):
        parts.save_table(sweep.table, sweep.name)
    if chosen := event["selection"]["rows"]:
        _open(sweep, shape.every[chosen[0]])


def _why_none(shape: Shape) -> str:
    """The commonest reason why figures have no interval."""
    reasons = [f.refused for o in shape.found for f in o.figures.values() if f.refused and f.estimate is not None]
    return max(set(reasons), key=lambda why: (reasons.count(why), why)) if reasons else "no figure is known"


def _cell(found: object) -> object:
    return found if isinstance(found, bool | int | float | str) or found is None else value(found)


def _open(sweep: Sweep, outcome: Outcome) -> None:
    """The scenario of a point, with the first of its seeds."""
    seed = min(next(iter(outcome.by_seed.values()), {0: None}))
    opened(lambda: cell_settings.of_point(sweep, outcome.point, seed))


def opened(settings: Callable[[], Settings]) -> None:
    """Opens Explore with settings, or says why there are none."""
    try:
        found = settings()
    except InputError as error:
        st.warning(message(f"This scenario cannot be opened: {error}"))
        return
    opening.explore(found)


def _expected(sweep: Sweep) -> None:
    """What the study's file expects, and what came of it."""
    if not sweep.study.expect:
        return
    if sweep.missing or sweep.failed:
        st.caption(f"{len(sweep.study.expect)} expectations of this study are judged when every cell is there.")
        return
    try:
        found = questions.answered(sweep.study, list(sweep.rows), figures=False)
    except InputError as error:
        st.warning(message(error))
        return
    parts.table(expectations.table("What the study expects", found.outcome))


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
