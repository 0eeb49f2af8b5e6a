"""A run as a trace: every step and request is there, slices nest, and the same run gives the same bytes."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import Any

import pytest

import scenarios
from scenarios.errors import InputError
from studies import perfetto
from studies.results import Run
from studies.run import simulate

BUSY = ["engine.num_gpu_blocks=60", "workload.arrivals.rate=20", "workload.requests=60"]
RETRIES = [
    "admission={max_queue_requests: 1}",
    "client_behaviour={timeout: 3s, retries: 2}",
    "workload.arrivals.rate=20",
]
CASES = {
    "plain": ("demo", []),
    "preempted": ("demo", BUSY),
    "retries": ("demo", RETRIES),
    "cut": ("demo", [*BUSY, "horizon=4s"]),
    "replicas": ("demo", ["replicas=2"]),
    "pools": ("cascade", ["workload.requests=80"]),
    "drafts": ("demo", ["engine.speculation={method: ngram, k: 3, acceptance: 0.5, found: 1}", "workload.requests=20"]),
}


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest) -> Run:
    name, overrides = CASES[request.param]
    return simulate(scenarios.load(name, overrides=overrides))


def slices(run: Run) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in perfetto.events(run):
        if event["ph"] == "X":
            found[event["pid"], event["tid"]].append(event)
    return found


def test_every_step_is_a_slice_of_its_replica(run: Run) -> None:
    steps = [event for (_, track), events in slices(run).items() if track == perfetto.STEPS for event in events]
    s = run.records.steps
    assert sorted((e["pid"] - 1, e["ts"], e["dur"]) for e in steps) == sorted(
        (int(k), a / 1e3, (b - a) / 1e3)
        for k, a, b in zip(s["replica"], s["start_ns"].tolist(), s["end_ns"].tolist(), strict=True)
    )


def test_every_request_that_was_sent_has_a_slice(run: Run) -> None:
    names = [e["name"] for events in slices(run).values() for e in events if e["name"].startswith("request ")]
    assert len(names) == len(set(names)) == int(run.records.submitted.sum())


def test_slices_of_a_track_nest(run: Run) -> None:
    for events in slices(run).values():
        # Outer slices first; of those that begin at the same time the longer one is the outer.
        within: list[tuple[float, float]] = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = round(event["ts"] * 1e3), round((event["ts"] + event["dur"]) * 1e3)
            while within and within[-1][1] <= begin:
                within.pop()
            assert not within or end <= within[-1][1], event
            within.append((begin, end))


def test_a_request_is_divided_without_gaps(run: Run) -> None:
    for (_, track), events in slices(run).items():
        if track < perfetto.FIRST_LANE:
            continue
        whole = sum(e["dur"] for e in events if e["name"].startswith("request "))
        parts = sum(e["dur"] for e in events if e["name"] in ("queue", "prefill", "decode"))
        assert parts == pytest.approx(whole, abs=0.01 * len(events))


def test_the_same_run_gives_the_same_bytes(run: Run, tmp_path) -> None:
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        perfetto.write(run, tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    plain = (tmp_path / "a.json").read_bytes()
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == plain
    assert json.loads(plain)["traceEvents"]


def test_preemptions_are_marked() -> None:
    run = simulate(scenarios.load("demo", overrides=BUSY))
    marks = [e for e in perfetto.events(run) if e["ph"] == "i"]
    assert len(marks) == run.summary["preemptions"] > 0


def test_a_window_holds_what_overlaps_it() -> None:
    run = simulate(scenarios.load("demo"))
    found = [e for e in perfetto.events(run, 10, 12) if e["ph"] == "X" and e["tid"] == perfetto.STEPS]
    assert 0 < len(found) < len(run.records.steps["step"])
    assert all(e["ts"] <= 12e6 and e["ts"] + e["dur"] >= 10e6 for e in found)


def test_the_command_writes_a_trace(servetwin, tmp_path) -> None:
    code, out, err = servetwin("perfetto", "demo", "--set", "workload.requests=5", "--out", "t.json.gz", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["events"] == len(
        json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    )


def test_a_finished_run_is_taken_from_its_folder(servetwin, tmp_path) -> None:
    assert servetwin("run", "demo", "--set", "workload.requests=5", "--out", "run")[0] == 0
    assert servetwin("perfetto", "run", "--out", "a.json")[0] == 0
    assert servetwin("perfetto", "demo", "--set", "workload.requests=5", "--out", "b.json")[0] == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--start", "5"], "without a unit"),
        (["demo", "--start", "5s", "--end", "4s"], "--end: found 4 s, but it must be after --start"),
        (["demo", "--start", "1h"], "nothing happens between 3600 s and the end"),
        (["demo", "--out", "."], "a trace is a file"),
        (["nowhere"], "there is no such file or shipped scenario"),
    ],
)
def test_what_cannot_be_written_is_refused(servetwin, arguments: list[str], message: str) -> None:
    code, _, err = servetwin("perfetto", *arguments)
    assert code == 2
    assert message in err


def test_a_run_without_steps_is_refused(tmp_path) -> None:
    run = simulate(scenarios.load("demo", overrides=["workload.requests=1", "horizon=1ms"]))
    with pytest.raises(InputError, match="nothing happens"):
        perfetto.write(run, tmp_path / "t.json")
