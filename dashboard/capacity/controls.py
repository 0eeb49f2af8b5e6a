"""What can be asked on the capacity page, as widgets; every answer is in the link."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import page_query
from dashboard.capacity import query as queries
from dashboard.capacity.query import (
    CONFIDENCE,
    DEVICES,
    LENGTH,
    LIMIT,
    LIMITS,
    OVER,
    PARALLEL,
    PRECISIONS,
    SIZE,
    TARGET,
    Question,
)
from dashboard.numbers import whole
from scenarios import InputError, Scenario
from scenarios.objectives import Objective
from studies.capacity import choices
from studies.capacity.load import TITLES
from studies.sweeps.axes import ALIASES

Query = dict[str, str]


def limits(page: str, query: Query, scenario: Scenario) -> None:
    """What must hold, for which load, and how sure one must be."""
    try:
        found, stated = queries.limits(query, scenario)
    except InputError:
        found, stated = None, ""
    _put("capacity:limits", query.get(LIMIT, ""))
    st.text_input(
        "What must hold",
        key="capacity:limits",
        placeholder=queries.text_of(found or ()),
        help="Limits of the run as a whole, all of which must hold: `ttft_p99<=500ms, tpot_p95<=50ms, good_request_fraction>=0.99`. "
        "Latencies are ttft, tpot, itl, e2e and queue, with mean, median or a percentile. Stricter limits and higher percentiles carry less.",
        on_change=_typed,
        args=(page, query, LIMIT),
    )
    if stated:
        st.caption(f"{stated[0].upper()}{stated[1:]}.")
    for column, metric in zip(st.columns(3), LIMITS, strict=True):
        with column:
            _limit(page, query, metric, found)
    left, middle, right = st.columns(3)
    with left:
        _over(page, query, scenario)
    with middle:
        sure = query.get(CONFIDENCE) or queries.USUAL
        _put("capacity:confidence", sure)
        st.selectbox(
            "How sure",
            list(dict.fromkeys((*queries.SURE, sure))),
            key="capacity:confidence",
            help="Confidence of bands and answers. Higher: wider bands, more runs, and a lower load that is known to hold.",
            on_change=_typed,
            args=(page, query, CONFIDENCE, queries.USUAL),
        )
    with right:
        _put("capacity:length", whole(query.get(LENGTH, ""), queries.SHORTEST, queries.LONGEST))
        st.number_input(
            "Requests of a run",
            queries.SHORTEST,
            queries.LONGEST,
            step=100,
            key="capacity:length",
            placeholder="as suits",
            help="At first; runs become longer where they must. Short runs are fast, but hold few of the rare busy times that make tails.",
            on_change=_typed,
            args=(page, query, LENGTH),
        )


def target(page: str, query: Query, asked: Question) -> None:
    """The load that is to be carried."""
    left, right = st.columns(2)
    with left:
        whole = asked.load.integer
        value = int(asked.target) if whole else float(asked.target)
        _put("capacity:target", value)
        st.number_input(
            f"Load to carry ({asked.load.unit})" if asked.load.unit else "Load to carry",
            1 if whole else 1e-9,
            step=1 if whole else max(float(f"{asked.load.start / 4:.1g}"), 1e-9),
            key="capacity:target",
            format="%d" if whole else "%.6g",
            help=f"Of {asked.load.path}. Everything below is about this load; the scenario's own is {asked.load.said(asked.load.start)}.",
            on_change=_typed,
            args=(page, query, TARGET, f"{asked.load.start:g}"),
        )
    offered = queries.sizes(asked.scenario)
    if len(offered) > 1:
        with right:
            names = {path: pool.name for path, pool in zip(offered, asked.scenario.pools, strict=True)}
            _put("capacity:size", asked.size)
            st.selectbox(
                "Pool that grows",
                offered,
                key="capacity:size",
                format_func=lambda path: names[path],
                help="The replicas of the other pools stay as they are.",
                on_change=_typed,
                args=(page, query, SIZE, offered[0]),
            )


def devices(page: str, query: Query, asked: Question) -> None:
    """Which deployments may carry it."""
    first, second, third = st.columns(3)
    for column, name, label, offered, chosen, usual, help in (
        (first, DEVICES, "Devices", choices.DEVICES, asked.devices, queries.usual_devices(asked.scenario),
         "Prices are those of the data sheets, USD a device-hour. More devices: a longer search."),
        (second, PRECISIONS, "Weights", choices.PRECISIONS, asked.precisions, queries.PRECISE,
         "auto is bfloat16. Fewer bytes a weight are faster and leave more room for KV; answers may be worse."),
        (third, PARALLEL, "Devices a replica", choices.PARALLEL, asked.parallel, queries.SIZES,
         "Tensor parallel: lower latency and more room for KV, paid in communication every layer."),
    ):  # fmt: skip
        with column:
            _put(f"capacity:{name}", list(chosen))
            st.multiselect(
                label, offered, key=f"capacity:{name}", help=help, on_change=_typed, args=(page, query, name, ",".join(map(str, usual))),
                format_func=_priced if name == DEVICES else str,
            )  # fmt: skip


def _priced(device: Any) -> str:
    from scenarios.hardware import CATALOG

    return f"{device} ({CATALOG[device].usd_per_hour:g} USD)"


def _limit(page: str, query: Query, metric: str, found: tuple[Objective, ...] | None) -> None:
    label, unit, factor, statistic = LIMITS[metric]
    place = None if found is None else queries.at(found, metric)
    _put(f"capacity:{metric}", None if place is None else float(f"{place.limit * factor:.9g}"))
    st.number_input(
        f"{label}, {statistic if place is None else place.statistic} within ({unit})",
        1e-6,
        1e9,
        step=50.0 if metric == "ttft" else 5.0 if metric == "tpot" else 1.0,
        format="%.6g",
        key=f"capacity:{metric}",
        placeholder="no limit",
        disabled=found is None,
        help="Writes the limit into the line above. For another percentile, write it there.",
        on_change=_limited,
        args=(page, query, metric, found or ()),
    )


def _limited(page: str, query: Query, metric: str, found: tuple[Objective, ...]) -> None:
    text = queries.with_limit(found, metric, st.session_state[f"capacity:{metric}"])
    page_query.change(page, {k: v for k, v in query.items() if k != LIMIT} | ({LIMIT: text} if text else {}))


def _over(page: str, query: Query, scenario: Scenario) -> None:
    offered = queries.loads(scenario)
    asked = query.get(OVER) or offered[0]
    chosen = next((load for load in offered if ALIASES.get(load, load) == ALIASES.get(asked, asked)), asked)
    _put("capacity:over", chosen)
    st.selectbox(
        "Load",
        list(dict.fromkeys((*offered, chosen))),
        key="capacity:over",
        format_func=lambda path: TITLES.get(path, path),
        accept_new_options=True,
        help="The number of the workload that is turned up and down: rates, clients of a closed loop, the speed of a trace, or any other "
        "number of it, by its path.",
        on_change=_typed,
        args=(page, query, OVER, offered[0]),
    )


def _typed(page: str, query: Query, name: str, usual: str = "") -> None:
    """A widget's value into the link, or out of it where it is what is usual."""
    value = st.session_state[f"capacity:{name}"]
    text = ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value).strip()  # fmt: skip
    kept = {other: text for other, text in query.items() if other != name}
    page_query.change(page, kept if text in ("", usual) else kept | {name: text})


def _put(key: str, value: Any) -> None:
    if st.session_state.get(key, _put) != value:
        st.session_state[key] = value
