"""What a comparison shows: who wins where, the table, the Pareto fronts, distributions, and all of it to take away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import streamlit as st

from dashboard import parts, theme
from dashboard.compare import table as comparison_table
from dashboard.compare.work import Compared
from dashboard.markup import literal, message
from studies import figures
from studies.comparison import Comparison, decision, files
from studies.comparison import figures as drawings
from studies.comparison.runs import COST, PER_GPU, PER_USER
from studies.comparison.winners import winners
from studies.reports import html, tables, written
from studies.reports.report import CDFS
from studies.statistics.intervals import FEWEST

METRICS = (
    "p50_ttft_ms",
    "p95_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "request_goodput",
    "output_throughput",
    COST,
)
"""Figures that are shown where nobody says which; those that no variant has are left out."""
_NAMES = {COST: "cost", PER_GPU: "tokens per GPU", PER_USER: "tokens per user"}
"""Of figures in titles, which have little room; axes say the whole."""
_LINE = 19
"""Pixels of a line of a legend."""


def show(
    compared: Compared,
    complete: bool,
    seeds: int,
    chosen: Sequence[str],
    command: Callable[[Sequence[str], Sequence[str]], str],
) -> None:
    """Draws what is known. seeds: that were asked for. chosen: figures of the table; of none `METRICS`. command: the same on a command
    line, of policies and the figures that were chosen."""
    for line in compared.refused:
        st.warning(message(f"Left out: {line}"))
    found = compared.found
    if found is None:
        st.error("None of the variants could be run. Change them, or the settings at the side.")
        return
    metrics = _metrics(found, chosen)
    found.metrics = metrics or found.metrics
    _verdict(found, metrics, complete, seeds)
    st.html(comparison_table.CSS + comparison_table.table(found, metrics, compared.kv_use, theme.dark()))
    _notes(found)
    suffix = "" if complete else f":{len(found.seeds)}"
    if len(found.runs) > 1:
        _fronts(found, suffix)
    _curves(found, suffix)
    with st.expander("In words: against the baseline, and what binds each"):
        lines = [*decision.verdicts(found), *found.sentences(), *found.costs()]
        st.markdown("\n".join(f"- {literal(line)}" for line in lines))
    if complete:
        _downloads(found, command(list(found.runs), [key for key in chosen if key in metrics]))


def _metrics(found: Comparison, chosen: Sequence[str]) -> tuple[str, ...]:
    """Columns of the table; a sentence on those that no run has."""
    known = set(found.figures)
    for key in chosen:
        if key not in known:
            reason = next(
                (run.summary["refused"][key] for run in found.runs.values() if key in run.summary["refused"]), ""
            )
            st.warning(message(f"{tables.label(key)}: {reason or 'a run has no such figure'}; it is left out."))
    if chosen:
        return tuple(key for key in dict.fromkeys(chosen) if key in known)
    return tuple(key for key in METRICS if any(_is_there(found, policy, key) for policy in found.runs))


def _is_there(found: Comparison, policy: str, key: str) -> bool:
    """Whether every run of a policy can carry a figure."""
    return written.figure(key, found.interval(policy, key)) != tables.DASH


def _verdict(found: Comparison, metrics: Sequence[str], complete: bool, seeds: int) -> None:
    """The sentence that says who wins where, or why nobody can say so yet."""
    done = len(found.seeds)
    if len(found.runs) < 2:
        st.info("One variant alone. Choose a set above, or add a variant: then the two are held against one another.")
    elif said := winners(found, metrics):
        st.info(literal(said))
    elif done < FEWEST:
        few = f"{done} seed{'s' * (done > 1)}"
        if complete:
            st.warning(
                f"{few}: no intervals, so nobody knows which differences are chance. {FEWEST} seeds give intervals."
            )
        else:
            st.info(
                f"{few} of {seeds} so far. Intervals come with the {FEWEST}th."
                if seeds >= FEWEST
                else f"{few} of {seeds} so far."
            )


def _notes(found: Comparison) -> None:
    note = decision.decision(found).note.replace(f"--seeds {FEWEST} tells", f"{FEWEST} seeds tell")
    note = note.replace(f"{written.NONE_SEEN}: its", f"{comparison_table.NONE_SEEN}: its")
    st.caption(literal(note).replace("\n", "  \n"))


def _fronts(found: Comparison, suffix: str) -> None:
    """Both Pareto figures, and in words who is on the front."""
    st.subheader("Pareto front")
    for column, (k, (across, up)) in zip(st.columns(2), enumerate(found.fronts), strict=False):
        with column:
            title = f"{_NAMES.get(up) or tables.name(up)} against {_NAMES.get(across) or tables.name(across)}"
            parts.figure(drawings.pareto(found, k), f"front:{k}{suffix}", title[:1].upper() + title[1:])
    front = decision.pareto(found)
    if front is None:
        st.caption(f"Who is on the front is told by intervals, which need {FEWEST} seeds.")
        return
    st.caption(
        "Circles: on the front; rings: open, more seeds would tell; crosses: dominated. Bars: intervals of each variant by itself."
    )
    with st.expander("Who is on the front"):
        parts.table(replace(front, title="", head=tuple(text.replace("\n", " ") or "variant" for text in front.head)))


def _curves(found: Comparison, suffix: str) -> None:
    st.subheader("Latency of requests")
    records = {name: run.records for name, run in found.runs.items()}
    promises = [vars(run.slo) for run in found.runs.values()]
    slo = found.runs[found.baseline].slo if all(each == promises[0] for each in promises) else None
    for column, (metric, title) in zip(st.columns(3), CDFS, strict=True):
        with column:
            drawn = figures.latency_cdf(metric, records, slo, found.baseline)
            drawn["layout"]["height"] += _LINE * max(0, len(records) - 2)
            parts.figure(drawn, f"{metric}{suffix}", title)
    if len(found.seeds) > 1:
        st.caption(f"Of the runs under seed {found.seeds[0]}.")


def _downloads(found: Comparison, command: str) -> None:
    st.subheader("Take it away")
    with st.container(horizontal=True, gap="small", key="compare:downloads"):
        st.download_button(
            "Report",
            lambda: html.render(files.page(found)),
            "compare.html",
            "text/html",
            key="save:compare:page",
            on_click="ignore",
            icon=":material/download:",
            help="The page that servetwin compare writes: one file that opens without a network.",
        )
        parts.save_table(lambda: files.table(found), "compare")
    st.caption("The same on a command line; add `--out DIR` to keep what it writes.")
    st.code(command, language="bash", wrap_lines=True)
