"""Studies: sweeps and runs that the workspace holds, one of them opened, or a small one started."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard import address, page_query, parts, workspace
from dashboard.markup import message
from dashboard.studies import kept, run_view, sweep_form, sweep_start, sweep_view
from dashboard.studies import work as sweep_work
from dashboard.studies.kept import Kept
from dashboard.studies.sweep_view import FOLDER, PAGE
from scenarios import InputError
from studies.reports.tables import DASH

EMPTY = """
There is no study in this workspace yet. A study runs one scenario many times with something varied; two ways to make one:
"""
COMMANDS = """servetwin sweep which_token_budget --out out/which_token_budget    # a shipped one
servetwin sweep my_study.yaml                                        # your own, as below"""
STUDY = """base: demo
question: How much load does one replica take?
axes: {workload.arrivals.rate: [1, 2, 4, 8, 16], engine.max_num_seqs: [16, 64]}
seeds: 5
"""
PARTIAL = "Not every folder was looked into: only the {folders:,} nearest the top, {depth} deep. Name others in the link: `folder=path/to/it`."


def page() -> None:
    """The page: one folder where the link names one, or all of them and a way to make more."""
    st.title("Studies")
    query = page_query.current(PAGE, lambda name: sweep_view.is_parameter(name) or sweep_start.is_parameter(name))
    settings = address.current(PAGE, query)
    for line in address.told():
        st.warning(message(line))
    if FOLDER in query:
        try:
            _opened(kept.named(query[FOLDER]), query)
            return
        except InputError as error:
            st.error(message(error))
    found, whole = kept.every()
    if found:
        _list(found)
    else:
        _empty()
    if not whole:
        st.caption(PARTIAL.format(folders=workspace.MOST_FOLDERS, depth=workspace.DEEPEST))
    st.subheader("Start a small one", anchor=False)
    sweep_start.form(settings, query)
    sweep_start.running()


def _opened(folder: Kept, query: Mapping[str, str]) -> None:
    """One folder."""
    st.button("All studies", icon=":material/arrow_back:", type="tertiary", on_click=page_query.change, args=(PAGE, {}))
    st.header(folder.name, anchor=False)
    st.caption(f"{folder.folder} · {_when(folder)}")
    if folder.problem:
        st.error(message(folder.problem))
        return
    path = workspace.inside(folder.folder)
    if folder.kind == kept.RUN:
        job = parts.ask(PAGE, folder.stamp, sweep_work.open_run, path)
        parts.follow(job, lambda run, _: run_view.show(run, path), "reading")
        return
    if folder.done < folder.total:
        _unfinished(folder)
    job = parts.ask(PAGE, folder.stamp, sweep_work.open_sweep, path)
    parts.follow(job, lambda sweep, _: sweep_view.show(sweep, query), "reading")


def _unfinished(folder: Kept) -> None:
    """What of a study is not there yet, and how it gets there."""
    so_far = f"{folder.done:,} of {folder.total:,} cells are finished"
    if folder.running:
        st.info(f"A sweep is writing to this folder: {so_far}. Shown is what there is.")
        st.button("Look again", icon=":material/refresh:")
        return
    begun = sweep_form.begun_as(folder.folder)
    if begun is None:
        st.info(f"{so_far}. The command that began this study goes on with the others.")
        return
    st.info(f"{so_far}. On a terminal, `{begun.command}` goes on with the others.")
    st.button("Go on here", icon=":material/play_arrow:", on_click=_go_on, args=(begun,))


def _go_on(begun: sweep_form.Begun) -> None:
    page_query.change(PAGE, {})  # where its progress is shown
    sweep_start.go_on(begun)


def _list(found: Sequence[Kept]) -> None:
    """All folders; a chosen one is opened."""
    words = {each.folder: f"{each.name} · {each.folder} · {_cells(each)}" for each in found}
    st.selectbox(
        f"Open one of {len(found):,}",
        list(words),
        index=None,
        format_func=lambda folder: words[folder],
        key="own:open",
        placeholder="A study or a run of this workspace",
        on_change=_open,
    )
    rows = [
        {
            "name": each.name,
            "question": each.question or each.problem,
            "cells": _cells(each),
            "failed": each.failed,
            "written": _when(each),
            "folder": each.folder,
        }
        for each in found
    ]
    event = st.dataframe(
        rows,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key="own:list",
        placeholder=DASH,
        alt="Studies and runs of the workspace, a row each: name, question, cells, failed cells, when it was written, folder.",
    )
    if chosen := event["selection"]["rows"]:
        page_query.change(PAGE, {FOLDER: found[chosen[0]].folder})
        st.rerun()


def _open() -> None:
    if folder := st.session_state["own:open"]:
        page_query.change(PAGE, {FOLDER: folder})


def _cells(each: Kept) -> str:
    if each.problem:
        return "damaged"
    if each.kind == kept.RUN:
        return "a run"
    if each.running:
        return f"{each.done:,} of {each.total:,}, running"
    return f"{each.total:,}" if each.done == each.total else f"{each.done:,} of {each.total:,}"


def _when(each: Kept) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(each.when)) if each.when else ""


def _empty() -> None:
    """What makes a study."""
    st.info(EMPTY.strip())
    st.code(COMMANDS, language="sh", wrap_lines=True)
    with st.expander("my_study.yaml", expanded=True):
        st.code(STUDY, language="yaml")
    st.caption(
        f"Looked for below {workspace.folder()}. Results of `servetwin run --out FOLDER` are listed as well. Or start a small one here:"
    )
