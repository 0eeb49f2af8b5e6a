"""Compare: up to six variants of the present scenario under the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard import page_query, panel, parts
from dashboard.compare import results as compare_results
from dashboard.compare import rows as variant_rows
from dashboard.compare import variants
from dashboard.compare import work as compare_work
from dashboard.compare.rows import PAGE
from dashboard.compare.work import Compared
from dashboard.markup import message
from dashboard.numbers import whole
from studies.comparison.result import ROWS
from studies.comparison.runs import PERCENTILES
from studies.reports import tables
from studies.statistics.intervals import FEWEST

SEEDS, METRICS = "seeds", "metrics"
MOST_SEEDS = 50
PATIENCE = 10.0
"""Seconds of work that begin without being asked for."""
_CONFIRMED = "compare.confirmed"
_LATENCIES = tuple(f"{stat}_{name}_ms" for name in tables.NAMES for stat in ("mean", *(f"p{p:g}" for p in PERCENTILES)))


def page() -> None:
    """The page: variants, what is asked of them, and what came of it."""
    st.title("Compare")
    query = page_query.current(PAGE, lambda name: name in (SEEDS, METRICS) or variant_rows.is_row(name))
    asked = panel.ask(PAGE, query)
    if asked.valid is None:
        return
    settings, scenario = asked.valid
    if asked.scenario is None:
        st.caption("Below are variants of the last settings that fit together.")
    rows = variant_rows.of(query, settings)
    variant_rows.draw(query, rows, settings, scenario)
    seeds, metrics = _options(query)
    checked = variants.checked(settings, rows)
    for line in (*variant_rows.told(), *checked.told):
        st.warning(message(line))
    if not checked.policies:
        st.info("There is nothing to run. Give a variant changes that fit, or choose a set above.")
        return
    further = tuple(key for key in metrics if _is_further(key))
    asked_for = (tuple((name, s.hash()) for name, s in checked.policies.items()), seeds, further)
    patience = None if st.session_state.get(_CONFIRMED) == asked_for else PATIENCE
    job = parts.ask(PAGE, (*asked_for, patience), compare_work.compare, checked.policies, seeds, further, patience)

    def draw(found: Compared, complete: bool) -> None:
        if found.seconds is not None:
            _confirm(found.seconds, len(checked.policies) * seeds, asked_for)
        else:
            compare_results.show(found, complete, seeds, metrics, command)

    def command(policies: Sequence[str], figures: Sequence[str]) -> str:
        run = [variant for variant in checked.variants if variant.name in policies]
        return variants.command(settings, run, seeds, figures)

    parts.follow(job, draw, "simulating the first variant")


def _options(query: dict[str, str]) -> tuple[int, list[str]]:
    """How many seeds, and which figures; what the link asks for and cannot have is told."""
    seeds, metrics = FEWEST, [key.strip() for key in query.get(METRICS, "").split(",") if key.strip()]
    if (text := query.get(SEEDS)) is not None:
        if (found := whole(text, 1, MOST_SEEDS)) is not None:
            seeds = found
        else:
            st.warning(
                message(f"seeds={text[:40]}: seeds are a whole number from 1 to {MOST_SEEDS}; shown are {seeds}.")
            )
    with st.container(horizontal=True, gap="small", key="compare:options"):
        _set("compare:seeds", seeds)
        st.number_input(
            "Seeds",
            1,
            MOST_SEEDS,
            key="compare:seeds",
            width=130,
            on_change=_chosen,
            help=f"Runs of each variant, all under the same seeds. {FEWEST} are the fewest that give intervals; more make them narrower.",
        )
        _set("compare:metrics", metrics)
        st.multiselect(
            "Figures in the table",
            list(dict.fromkeys((*compare_results.METRICS, *ROWS, *_LATENCIES, *metrics))),
            key="compare:metrics",
            format_func=tables.label,
            placeholder="TTFT, TPOT, goodput, tokens and cost",
            width="stretch",
            on_change=_chosen,
            help="Empty: the usual ones. A link may name any figure of `servetwin run --json`, such as `metrics=p75_ttft_ms`.",
        )
    return seeds, metrics


def _chosen() -> None:
    kept = {name: text for name, text in page_query.held(PAGE).items() if name not in (SEEDS, METRICS)}
    seeds, metrics = st.session_state["compare:seeds"], st.session_state["compare:metrics"]
    if seeds != FEWEST:
        kept[SEEDS] = str(seeds)
    if metrics:
        kept[METRICS] = ",".join(metrics)
    page_query.change(PAGE, kept)


def _is_further(key: str) -> bool:
    """Whether a figure is computed only where it is asked for: a percentile that is none of the usual."""
    stat, _, rest = key.partition("_")
    number = stat.removeprefix("p")
    usual = {f"{p:g}" for p in PERCENTILES}
    is_latency = rest in {f"{name}_ms" for name in tables.NAMES}
    return is_latency and stat != number and number.replace(".", "", 1).isdecimal() and number not in usual


def _confirm(seconds: float, runs: int, asked_for: Any) -> None:
    took = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    st.info(
        f"{runs} runs will take about {took}, as the first one tells. Fewer requests, variants or seeds are faster."
    )
    st.button(
        f"Run all {runs}",
        key="compare:run",
        type="primary",
        on_click=st.session_state.update,
        args=({_CONFIRMED: asked_for},),
    )


def _set(key: str, value: Any) -> None:
    if st.session_state.get(key) != value:
        st.session_state[key] = value
