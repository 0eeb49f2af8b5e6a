"""A report says what was given up, by design or by accident, whom it hurt, and which rung was in force when."""

from __future__ import annotations

from typing import Any

import scenarios
from studies.aspects import given_up
from studies.results import Run
from studies.run import simulate

TEXT = """
model: Qwen3-0.6B
hardware: H100
engine: {max_num_seqs: 4}
workload:
  requests: 200
  arrivals: {process: poisson, rate: 60}
  input: 500
  output: 100
  classes: [{name: gold}, {name: bronze, priority: 1}]
slo: {ttft: 1s}
"""


def run(more: str) -> Run:
    return simulate(scenarios.loads(TEXT + more))


def losses(found: Run) -> dict[str, dict[str, Any]]:
    return {loss["what"]: loss for loss in found.info["given_up"]["losses"]}


def test_without_anything_declared_what_is_late_is_an_accident() -> None:
    found = losses(run(""))
    assert list(found) == ["answered beyond the SLO"]
    assert not found["answered beyond the SLO"]["by_design"]


def test_a_ladder_says_when_it_was_in_force_whom_it_hurt_and_what_it_saved() -> None:
    result = run(
        """
degradation:
  ladder:
    - {cap_output: 40, on_at: 4, off_below: 1}
    - {shed_class: bronze, on_at: 8, off_below: 2}
"""
    )
    found, r = losses(result), result.records.requests
    assert found["shed by class"]["by_design"]
    assert found["shed by class"]["by_class"]["gold"] == 0
    assert found["shed by class"]["tokens_saved"] == 600 * found["shed by class"]["requests"]
    assert found["answer capped"]["tokens_saved"] == 60 * found["answer capped"]["requests"]
    first, second = result.info["given_up"]["rungs"]
    assert first["requests"] == (r["rung"] >= 1).sum() > second["requests"] == (r["rung"] == 2).sum() > 0
    assert first["seconds"] >= second["seconds"] > 0
    assert first["first_s"] <= second["first_s"]
    tables = given_up.tables_of(result)
    assert [table.title for table in tables] == ["Degradation ladder", "What was given up"]


def test_time_outs_and_clients_who_left_are_accidents() -> None:
    found = losses(
        run("\nadmission: {queue_timeout: 300ms}\nclient_behaviour: {timeout: 400ms, retries: 1, backoff: 100ms}\n")
    )
    assert not found["timed out in the queue"]["by_design"]
    assert not found["client left"]["by_design"]
