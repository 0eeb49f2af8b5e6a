"""Classes and tenants in reports and result folders, and what is unknown of how long answers get."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import scenarios
from serving.metrics import by_request, meets
from studies import results, simulate
from studies.aspects import senders
from studies.reports import run_tables, tables
from studies.results import Run

TEXT = """
model: qwen3-tiny
hardware: cpu
engine: {max_model_len: 2048}
workload:
  requests: 60
  arrivals: {process: poisson, rate: 20}
  classes:
    - {name: interactive, weight: 3, input: 40, output: 20, slo: {ttft: 500ms, tpot: 1s}}
    - {name: batch, weight: 1, input: 600, output: 40, slo: {}}
  tenants: [{name: acme}, {name: zen, classes: {interactive: 1}}]
slo: {ttft: 1ns}
"""


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(scenarios.loads(TEXT))


def cells(table: tables.Table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.head[1:], row[1:], strict=True)) for row in table.rows}


def test_every_class_has_a_row_and_says_what_it_is_promised(run: Run) -> None:
    of_class, of_tenant = senders.tables_of(run)
    found = cells(of_class)
    assert list(found) == ["interactive", "batch"]
    assert found["batch"]["good"] == "100 %"  # promised nothing, not even the scenario's 1 ns
    assert int(found["interactive"]["sent"]) + int(found["batch"]["sent"]) == 60
    assert "interactive: TTFT 500ms, TPOT 1s; batch: nothing" in of_class.note
    assert set(cells(of_tenant)) == {"acme", "zen"}
    assert of_class in run_tables.every(run)


def test_what_never_happened_has_no_column(run: Run) -> None:
    head = senders.tables_of(run)[0].head
    assert not {"tries", "failed", "hits"} & set(head)


def test_a_scenario_without_classes_has_no_such_table() -> None:
    plain = simulate("demo")
    assert senders.tables_of(plain) == []
    assert not {"by_class", "by_tenant"} & set(plain.summary)


def test_a_saved_run_keeps_classes_their_limits_and_latencies(run: Run, tmp_path: Path) -> None:
    folder = results.save(run, tmp_path / "out")
    again = results.load(folder)
    assert again.records.class_slo == run.records.class_slo
    assert (meets(again.records, again.slo) == meets(run.records, run.slo)).all()
    assert again.summary["by_class"] == run.summary["by_class"]
    assert senders.tables_of(again) == senders.tables_of(run)
    written = pq.read_table(folder / "requests.parquet")
    for name in ("ttft", "tpot"):
        values = np.array(written[name].to_pylist(), dtype=np.float64)
        assert np.array_equal(values, by_request(run.records, name), equal_nan=True)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ((), ""),
        (("workload.answer_lengths={models: {qwen3-tiny: 1.5}}",), "answer lengths: model qwen3-tiny x 1.5; unknown, taken as 1: precision bfloat16"),
        (("engine.dtype=int4",), "answer lengths: as stated; unknown, taken as 1: model qwen3-tiny, precision int4"),
        (("workload.transforms=[{kind: cap_output, tokens: 9}]",), "transform cap_output"),
    ],
)  # fmt: skip
def test_what_nobody_knows_of_answer_lengths_is_said(overrides: tuple[str, ...], said: str) -> None:
    run = simulate(scenarios.loads(TEXT, overrides=overrides))
    assert said in senders.sentence(run)
    assert bool(senders.sentence(run)) == bool(said)
    assert (senders.sentence(run) in run_tables.about(run)) == bool(said)
    known: list[dict[str, Any]] = run.info["answer_lengths"]
    assert [part["what"] for part in known][:2] == ["model", "precision"]


def test_promises_of_all_others_are_named_where_there_are_others():
    def said(*limits: Any) -> str:
        return senders._promises(SimpleNamespace(records=SimpleNamespace(classes=("chat", "batch"), class_slo=limits)))

    assert said({"ttft": 1.0}, {"e2e": 60.0}) == "Promised by class: chat: TTFT 1s; batch: E2E 1m."
    assert said({"ttft": 1.0}, None) == "Promised by class: chat: TTFT 1s; to all others what the scenario promises."
    assert said(None, None) == ""
