"""Phases of requests: they touch, cover the whole time, and agree with what is known of it otherwise."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

import scenarios
from scenarios.errors import InputError
from serving.records import Records
from serving.rows import rows_of
from studies.explaining.latency_parts import divide_steps, latency_parts
from studies.figures import gantt
from studies.figures.phases import DECODE, PHASES, PREEMPTED, PREFILL, QUEUE, Span, phases
from studies.run import simulate
from tests.laws.worlds import World, law, roofline, worlds

TIGHT = [
    "workload.requests=150", "workload.arrivals.rate=40", "workload.output=60", "engine.num_gpu_blocks=80", "hardware=H100",
]  # fmt: skip
WAYS = {"recompute": [], "swap": ["engine.preemption=swap", "engine.swap_space=4"]}
RETRIES = [
    "admission={max_queue_requests: 1}",
    "client_behaviour={timeout: 3s, retries: 2}",
    "workload.arrivals.rate=20",
]


@pytest.fixture(scope="module")
def tight() -> Records:
    records = simulate(scenarios.load("demo", overrides=TIGHT)).records
    assert len(records.preempted) > 10
    return records


@pytest.fixture(scope="module")
def retried() -> Records:
    return simulate(scenarios.load("demo", overrides=RETRIES)).records


def everybody(records: Records) -> list[list[Span]]:
    return phases(records, range(len(records.requests["status"])))


def check(records: Records) -> None:
    r = records.requests
    last = int(records.steps["end_ns"].max(initial=0))
    for i, spans in enumerate(everybody(records)):
        if r["status"][i] < 0:
            assert spans == []
            continue
        begin, end = int(r["arrival_ns"][i]), int(r["finish_ns"][i])
        if end < 0:
            end = max(last, begin)
        edges = [begin, *(until for _, _, until in spans)]
        assert [since for _, since, _ in spans] == edges[:-1], "they touch, from its arrival on"
        assert edges[-1] == end, "to its end"
        assert all(a < b for a, b in pairwise(edges)), "in order"
        assert all(a[0] != b[0] for a, b in pairwise(spans)), "what goes on is one"


def taken(spans: list[Span], *names: str) -> int:
    return sum(end - begin for name, begin, end in spans if name in names)


@given(worlds())
@law(80)
def test_phases_of_a_request_touch_and_cover_its_time(world: World) -> None:
    check(world.run())


@given(worlds())
@law(80)
def test_phases_agree_with_the_parts_of_latency(world: World) -> None:
    """Until its first step it waits; what a preemption took is from the loss of blocks until the next token of its answer."""
    records = world.run()
    rows = rows_of(records)
    assert rows is not None
    costs = [roofline()] * int(str(records.info["replicas"]))
    parts = latency_parts(records, rows, divide_steps(records, rows, costs))
    for i, spans in enumerate(everybody(records)):
        if not records.finished[i] or records.requests["first_token_ns"][i] < 0:
            continue
        waited = parts.before["queue"][i] + parts.before["front_end"][i]
        assert taken(spans, QUEUE) == waited
        names = [name for name, _, _ in spans]
        lost = spans[names.index(PREEMPTED) :] if PREEMPTED in names else []
        assert taken(lost, PREEMPTED, PREFILL) == parts.before["preemption"][i] + parts.after["preemption"][i]


@pytest.mark.parametrize("way", WAYS)
def test_a_preempted_request_waits_computes_again_and_goes_on(way: str) -> None:
    records = simulate(scenarios.load("demo", overrides=[*TIGHT, *WAYS[way]])).records
    check(records)
    lost = [spans for spans in everybody(records) if taken(spans, PREEMPTED)]
    again = [PREEMPTED, PREFILL, DECODE] if way == "recompute" else [PREEMPTED, DECODE]
    assert any([name for name, _, _ in spans][-len(again) :] == again for spans in lost)


def test_of_a_run_whose_rows_were_not_logged_phases_still_cover_the_time(tight: Records) -> None:
    from dataclasses import replace

    check(replace(tight, chunks=tight.chunks[:0]))


def test_tries_have_phases_of_their_own(retried: Records) -> None:
    check(retried)


def test_around_the_slowest_stand_those_that_arrived_beside_it(tight: Records) -> None:
    slow = gantt.slowest(tight)
    r = tight.requests
    assert slow == int(np.argmax(r["finish_ns"] - r["arrival_ns"]))
    shown = gantt.neighbours(tight, slow, 21)
    assert len(shown) == 21
    arrivals = r["arrival_ns"][shown]
    assert (np.diff(arrivals) >= 0).all()
    assert slow in shown
    others = np.setdiff1d(np.arange(len(r["status"])), shown)
    assert ((r["arrival_ns"][others] <= arrivals[0]) | (r["arrival_ns"][others] >= arrivals[-1])).all()


def test_neighbours_share_the_replica() -> None:
    records = simulate(scenarios.load("demo", overrides=["replicas=2"])).records
    shown = gantt.neighbours(records, 7)
    assert set(records.requests["replica"][shown]) == {records.requests["replica"][7]}


def test_every_bar_tells_its_request(tight: Records) -> None:
    figure = gantt.requests(tight)
    bars = [trace for trace in figure["data"] if trace["type"] == "bar"]
    assert [trace["name"] for trace in bars] == list(PHASES)
    shown = gantt.neighbours(tight, gantt.slowest(tight))
    for trace in bars:
        for row, (request,), text in zip(trace["y"], trace["customdata"], trace["hovertext"], strict=True):
            assert shown[row] == request
            assert f"request {request}<" in text
    assert {request for trace in bars for (request,) in trace["customdata"]} == set(shown)
    assert "TTFT" in bars[0]["hovertext"][0]


def test_bars_are_as_long_as_the_phases(tight: Records) -> None:
    figure = gantt.requests(tight, rows=[3, 1, 2])
    bars = {trace["name"]: trace for trace in figure["data"]}
    spans = phases(tight, [1, 2, 3])
    for name in bars:
        seconds = sum(taken(some, name) for some in spans) / 1e9
        assert sum(bars[name]["x"]) == pytest.approx(seconds, abs=1e-5)


def test_phases_differ_without_colour_too(tight: Records) -> None:
    patterns = {t["name"]: t["marker"]["pattern"]["shape"] for t in gantt.requests(tight)["data"]}
    assert patterns[QUEUE] != patterns[PREEMPTED] != ""
    assert patterns[PREFILL] == patterns[DECODE] == ""  # one light, one dark


def test_a_request_without_an_answer_ends_with_a_cross(retried: Records) -> None:
    lost = np.flatnonzero(retried.submitted & ~retried.finished)[:5].tolist()
    (crosses,) = (t for t in gantt.requests(retried, rows=lost)["data"] if t["name"] == "not answered")
    assert sorted(request for (request,) in crosses["customdata"]) == sorted(lost)


def test_no_more_requests_are_shown_than_fit(tight: Records) -> None:
    figure = gantt.requests(tight, rows=range(100), most=30)
    assert len({request for t in figure["data"] for (request,) in t["customdata"]}) == 30


def test_a_request_that_is_not_there_is_refused(tight: Records) -> None:
    with pytest.raises(InputError, match="there are 0 to 149"):
        gantt.requests(tight, around=150)


def test_a_run_without_requests_has_an_empty_figure() -> None:
    records = simulate(scenarios.load("demo", overrides=["workload.requests=3", "horizon=1ms"])).records
    assert gantt.requests(records)["data"] == [] or gantt.slowest(records) is not None
