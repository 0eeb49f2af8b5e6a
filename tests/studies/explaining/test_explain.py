"""Why requests were slow, in words; what one did to all others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import scenarios
import studies
from cli import main
from scenarios.errors import InputError
from studies.explaining.explain import Explanation, tables_of
from studies.explaining.without import without
from studies.reports.run_tables import every
from studies.results import Run

LONG = """
name: long-prompt
model: Llama-3.1-8B
hardware: H100
engine: {preset: vllm@0.32, max_num_batched_tokens: 2048}
prices: {gpu_hour: 3.0}
workload:
  mix:
    chat: {arrivals: {process: poisson, rate: 4}, requests: 400, input: 300, output: 50}
    documents: {arrivals: {process: constant, rate: 1/m}, requests: 1, input: 90000, output: 20}
"""


@pytest.fixture(scope="module")
def run() -> Run:
    return studies.simulate(scenarios.loads(LONG))


@pytest.fixture(scope="module")
def long(run: Run) -> int:
    return int(np.argmax(run.records.requests["prompt_tokens"]))


def test_who_waits_behind_the_long_prompt_is_told_so(run: Run, long: int) -> None:
    found = Explanation(run)
    slow = found.worst("queue", 1)[0]
    said = found.sentence(slow)
    assert "in the queue" in said
    assert f"Request {long}'s prompt of 90,000 tokens took" in said
    assert "the step's token budget is spent" in said
    assert found.in_the_way(slow)[0].request == long


def test_the_tail_names_the_prompt_behind_which_it_waited(run: Run, long: int) -> None:
    said = Explanation(run).tail_sentence()
    assert "1 of them is slow by its own prompt, of up to 90,000 tokens" in said
    assert f"while request {long}'s prompt of 90,000 tokens was computed" in said


def test_every_report_says_behind_whom_the_tail_waited(run: Run, long: int, tmp_path: Path) -> None:
    shown = {table.title: table for table in every(run)}["Where time to first token went"]
    assert shown.head[1:] == ("mean of 401", "slowest 4")
    assert shown.rows[-1][0] == "time to first token"
    assert f"while request {long}'s prompt of 90,000 tokens was computed" in shown.note
    assert "Where time to first token went" in (studies.save(run, tmp_path / "run") / "report.html").read_text()


def test_reports_of_very_large_runs_and_of_runs_without_rows_leave_it_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(run, records=replace(run.records, chunks=run.records.chunks[:0]))
    assert not tables_of(bare)
    monkeypatch.setattr("studies.explaining.explain.LARGEST", 400)
    assert not tables_of(run)


def test_worst_first(run: Run) -> None:
    found = Explanation(run)
    ttft = found.parts.ttft()
    assert found.worst("ttft", 3) == np.argsort(-ttft, kind="stable")[:3].tolist()


def test_without_the_long_prompt_others_come_earlier(run: Run, long: int) -> None:
    assert run.workload is not None
    found = without(run, run.workload, long)
    assert found.delayed > 10
    assert found.ttft_ns > 1e9
    assert found.worst != long
    assert (
        f"Request {long} (90,000 prompt tokens, 20 answer tokens) delayed {found.delayed} others by " in found.sentence
    )
    other_way = replace(found, e2e_ns=-63_000_000_000, ttft_ns=-2_000_000_000).sentence
    assert (
        f"delayed {found.delayed} others; yet all together end 63 s earlier (first tokens by 2 s earlier;" in other_way
    )
    assert found.charged_ns is not None
    assert found.charged_ns > 4e9, "most of the time that its prompt takes alone"
    assert found.charged_usd == pytest.approx(found.charged_ns * 3.0 / 3600e9)
    assert "It is charged" in found.sentence
    again = without(run, run.workload, long)
    assert again == found


def test_the_last_request_delays_nobody_that_had_ended() -> None:
    apart = studies.simulate(scenarios.loads(LONG.replace("poisson, rate: 4", "constant, rate: 1/m")))
    assert apart.workload is not None
    found = without(apart, apart.workload, len(apart.workload) - 1)
    assert found.delayed == 0
    assert "delayed nobody" in found.sentence


def test_a_result_folder_is_explained_as_the_run_was(run: Run, tmp_path: Path) -> None:
    studies.save(run, tmp_path / "run")
    loaded = studies.load(tmp_path / "run")
    slow = Explanation(run).worst("ttft", 5)
    assert Explanation(loaded).document(slow, "ttft") == Explanation(run).document(slow, "ttft")


def test_a_result_without_a_log_of_rows_says_so(run: Run) -> None:
    bare = replace(run, records=replace(run.records, chunks=run.records.chunks[:0]))
    with pytest.raises(InputError, match="who was in which step was not recorded"):
        Explanation(bare)


@pytest.mark.parametrize("request_", [-1, 100_000])
def test_a_request_that_there_is_not_is_refused(run: Run, request_: int) -> None:
    assert run.workload is not None
    with pytest.raises(InputError, match="no such request"):
        without(run, run.workload, request_)
    with pytest.raises(InputError, match="no such request"):
        Explanation(run).sentence(request_)


def test_the_command_prints_one_json_document(
    run: Run, long: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    studies.save(run, tmp_path / "run")
    with pytest.raises(SystemExit) as ended:
        main(["explain", str(tmp_path / "run"), "--worst", "ttft", "--without", str(long), "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["without"]["request"] == long
    assert found["requests"][0]["parts_ms"]
    assert sum(found["requests"][0]["ttft_parts_ms"].values()) > 0


def test_an_unknown_figure_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match="--worst: found ttfb; allowed: ttft, tpot, e2el, queue"):
        Explanation(run).worst("ttfb", 1)
