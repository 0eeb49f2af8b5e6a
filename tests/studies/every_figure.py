"""One of every kind of figure that studies draw, from small runs."""

from __future__ import annotations

import scenarios
import studies
from studies import figures
from studies.capacity import cheapest_figure, fewest_report
from studies.capacity import figures as of_capacity
from studies.capacity.replicas import fewest
from studies.comparison import figures as of_comparison
from studies.figures import gantt
from studies.figures.style import Figure
from studies.run import simulate
from studies.sweeps import figures as of_sweeps
from studies.sweeps.axes import short_names
from studies.uncertainty import page
from studies.uncertainty.decision import decide
from tests.studies.capacity.judged import azure
from tests.studies.capacity.test_cheapest_report import Judge
from tests.studies.capacity.test_cheapest_report import found as cheapest
from tests.studies.sweeps import rows

TIGHT = [
    "workload.requests=150", "workload.arrivals.rate=40", "workload.output=60", "engine.num_gpu_blocks=80", "hardware=H100",
]  # fmt: skip
SMALL = ["workload.requests=60"]
RATES = {"from": 1, "to": 16, "steps": 5, "spacing": "log"}
WIDTHS = [4, 16, 64]
NARROW = ["engine.max_num_batched_tokens=1024"]
QUICK = ["engine.max_num_seqs=1", "workload.output=10", "workload.input=100", "workload.arrivals.rate=20"]
WORLDS = ["workload.requests=30", "workload.arrivals.rate=8", "cost.profile=auto"]


def every_figure() -> dict[str, Figure]:
    """By a name of its own."""
    return of_runs() | of_studies() | of_searches()


def of_runs() -> dict[str, Figure]:
    tight, demo = simulate(scenarios.load("demo", overrides=TIGHT)), simulate("demo")
    runs = {"tight": tight.records, "demo": demo.records}
    usable = tight.info["engine"]["num_gpu_blocks"] - 1
    return {
        **{f"cdf of {m}": figures.latency_cdf(m, runs, tight.slo, baseline="demo") for m in figures.LATENCY_AXES},
        "load": figures.load_over_time(tight.records, usable),
        "load in blocks": figures.load_over_time(demo.records),
        "batches": figures.batch_composition(tight.records),
        "agreement": figures.predicted_against_measured(tight.records, tight.records),
        "phases": gantt.requests(tight.records),
    }


def of_studies() -> dict[str, Figure]:
    along = rows.sweep({"workload.rate": RATES}, rows.queueing)
    grid = rows.sweep({"workload.rate": RATES, "engine.max_num_seqs": WIDTHS}, rows.queueing)

    points, names = grid.points(None), short_names(grid.study.axis_names)
    key = "p50_ttft_ms"
    compared = studies.compare(
        {"one": azure(*SMALL), "narrow": azure(*SMALL, "engine.max_num_seqs=4")}, seeds=5, processes=1
    )
    return {
        "lines": of_sweeps.lines(along.points(None), "workload.rate", key, names),
        "lines by": of_sweeps.lines(points, "workload.rate", key, names, "engine.max_num_seqs"),
        "dots": of_sweeps.dots(points[:8], key),
        "heat map": of_sweeps.heat(points, "workload.rate", "engine.max_num_seqs", key, names),
        "parallel": of_sweeps.parallel(points, list(names), [key, "output_throughput"], names),
        "scatter": of_sweeps.scatter(points, "workload.rate", key, names),
        "pareto": of_comparison.pareto(compared, 0),
        "change": next(f for m in compared.metrics if (f := of_comparison.change(compared, m)) is not None),
    }


def of_searches() -> dict[str, Figure]:
    load = studies.highest_load(azure(*QUICK), "e2e_p50<=300ms", processes=1, resolution=1.0, most=5, requests=60)
    first, second = (scenarios.load("azure-conversation", overrides=[*WORLDS, *more]) for more in ([], NARROW))
    decision = decide(first, second, "mean_ttft_ms", worlds=20, processes=1, names=("wide", "narrow"))
    return {
        "latency against load": of_capacity.latency(load, "e2el"),
        "throughput against load": of_capacity.throughput(load),
        "cheapest": cheapest_figure.figure(cheapest(2)),
        "fewest": fewest_report.figure(fewest(azure(), "replicas", Judge(2))),
        "differences": page.differences(decision),
    }
