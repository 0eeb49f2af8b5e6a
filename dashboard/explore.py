"""Explore: one scenario, a few knobs, a real simulation behind every move of a slider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streamlit as st

import scenarios
from scenarios import InputError, Scenario
from scenarios import hardware as hardware_catalog
from scenarios import models as model_catalog
from serving.batching import BATCHINGS
from serving.policies import ORDERS
from serving.routing import ROUTERS
from studies import figures
from studies.reports import run_tables
from studies.reports.limits import NOT_MODELLED
from studies.reports.report import CDFS, cards
from studies.results import Run
from studies.run import simulate

OWN = "own"
MEANING = {
    "chunked": "chunked (vLLM V1, Sarathi)",
    "prefill_first": "prefill first (Orca, vLLM V0)",
    "static": "static (wait for the slowest)",
    "fcfs": "first come, first served",
}
"""Words for strategies whose names say too little; others are shown by name."""
PLOT = {"displaylogo": False, "displayModeBar": False}


def page() -> None:
    """The page: knobs at the side; what came of them, what binds, and the figures."""
    st.title("Explore")
    overrides = knobs(scenarios.load("demo"))
    try:
        with st.spinner("simulating", show_time=False):
            run = simulated(tuple(overrides))
    except InputError as error:
        st.error(str(error))
        st.stop()
    show(run)


NEEDS = {
    "shortest_first": (["workload.predictor=oracle"], "An oracle predicts how long answers are."),
    "fair": (
        ["workload.tenants=[{name: heavy, weight: 4}, {name: light}]"],
        "A heavy tenant sends four times what a light one does.",
    ),
}
"""What an order goes by and the demo lacks: overrides, and a sentence about them."""


@st.cache_resource(max_entries=50, show_spinner=False)
def simulated(overrides: tuple[str, ...]) -> Run:
    """The demo scenario with these overrides, simulated; kept, as the same knobs give the same run."""
    return simulate(scenarios.load("demo", overrides=overrides))


def knobs(scenario: Scenario) -> list[str]:
    """The controls, and what they mean as overrides of the scenario."""
    engine = scenario.engine_config()
    with st.sidebar:
        st.header("Load")
        rate = st.slider("Requests per second", 0.5, 30.0, rate_of(scenario), 0.5, key="rate")
        requests = st.select_slider("Requests", [50, 100, 200, 500, 1000], 100, key="requests")
        st.header("Engine")
        batching = choice("Batching", BATCHINGS, engine.batching)
        policy = choice("Queue order", ORDERS, engine.policy)
        given, said = NEEDS.get(policy, ([], ""))
        if said:
            st.caption(said)
        cache = st.toggle("Prefix cache", engine.enable_prefix_caching, key="cache")
        sequences = st.select_slider("max_num_seqs", [1, 2, 4, 8, 16, 32, 64, 128], engine.max_num_seqs, key="seqs")
        tokens = st.select_slider(
            "max_num_batched_tokens", [64, 128, 256, 512, 1024, 2048], engine.max_num_batched_tokens, key="tokens"
        )
        st.header("Deployment")
        replicas = st.select_slider("Replicas", [1, 2, 4, 8], scenario.replicas, key="replicas")
        router = choice("Router", ROUTERS, scenario.router)
        st.header("Model and hardware")
        models = {OWN: f"as in the demo ({scenario.model.name})"}
        model = st.selectbox(
            "Model", [OWN, *model_catalog.CATALOG], format_func=lambda n: models.get(n, n), key="model"
        )
        devices = {OWN: f"as the model needs ({scenario.hardware.name})"}
        device = st.selectbox(
            "Hardware", [OWN, *hardware_catalog.CATALOG], format_func=lambda n: devices.get(n, n), key="hardware"
        )
        if device == OWN and model != OWN and (fitting := fits(model)) != OWN:
            device = fitting
            st.caption(f"{model} is shown on {device}.")
    found = [
        f"workload.arrivals={{process: poisson, rate: {rate}}}",
        f"workload.requests={requests}",
        f"engine.batching={batching}",
        f"engine.policy={policy}",
        *given,
        f"engine.enable_prefix_caching={'true' if cache else 'false'}",
        f"engine.max_num_seqs={sequences}",
        f"engine.max_num_batched_tokens={max(tokens, sequences)}",
        f"replicas={replicas}",
        f"router={router}",
    ]
    if model != OWN:
        found.append(f"model={model}")
    if device != OWN:
        found.append(f"hardware={device}")
    if model != OWN or device != OWN:
        found.append("engine.num_gpu_blocks=null")  # as many as its memory holds
    return found


def rate_of(scenario: Scenario) -> float:
    """The scenario's requests per second, as far as the slider can show it."""
    return min(30.0, max(0.5, float(getattr(scenario.workload.arrivals, "rate", 2.0))))


@st.cache_data(show_spinner=False)
def fits(model: str) -> str:
    """The scenario's own hardware if the model fits it, else the smallest of the catalog that holds it; own if none does."""
    by_memory = sorted(hardware_catalog.CATALOG.items(), key=lambda item: item[1].memory_bytes)
    for name in (OWN, *(name for name, _ in by_memory)):
        device = [] if name == OWN else [f"hardware={name}"]
        try:
            scenarios.load("demo", overrides=[f"model={model}", "engine.num_gpu_blocks=null", *device]).engine_config()
        except InputError:
            continue
        return name
    return OWN


def choice(title: str, strategies: Iterable[str], default: str) -> str:
    """A box with every strategy that `serving` has on offer."""
    names = list(strategies)
    key = title.lower()
    return st.selectbox(title, names, names.index(default), format_func=lambda n: MEANING.get(n, n), key=key)


def show(run: Run) -> None:
    """Cards, the sentence that names the bottleneck, figures and tables of one run."""
    st.caption(run_tables.heading(run))
    st.info(run.info["binding"]["sentence"])
    headlines = cards(run.summary)
    for row in (headlines[:4], headlines[4:]):
        for column, (value, text) in zip(st.columns(4), row, strict=False):
            column.metric(text, value, border=True)
    for line in run_tables.rejections(run):
        st.warning(line)
    columns = st.columns(3)
    for column, (metric, title) in zip(columns, CDFS, strict=True):
        with column:
            draw(title, figures.latency_cdf(metric, {run.name: run.records}, run.slo), metric)
    draw(
        "Requests and KV memory", figures.load_over_time(run.records, run.info["engine"]["num_gpu_blocks"] - 1), "load"
    )
    draw("Batches", figures.batch_composition(run.records), "batches")
    with st.expander("All figures as tables"):
        for table in run_tables.every(run):
            st.markdown(f"**{table.title}**")
            st.table([dict(zip(table.head, row, strict=True)) for row in table.rows])
            if table.note:
                st.caption(table.note.replace("\n", "  \n"))  # two spaces keep the line break
    with st.expander("What is not modelled"):
        st.markdown("\n".join(f"- {line}" for line in NOT_MODELLED))


def draw(title: str, figure: dict[str, Any], key: str) -> None:
    st.markdown(f"**{title}**")
    st.plotly_chart(figure, key=key, theme=None, config=PLOT)
