"""What stands before the replicas is executed on the CPU engine, on both clocks, and what was decided there is decided again in replay."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.schema import Scenario
from serving.request import Cause, Status
from studies.results import Run
from studies.run import execute, replayed

pytest.importorskip("torch", reason="executions need the extra gpu")

SMALL: dict[str, Any] = {
    "model": {
        "name": "two-layers", "hidden_size": 64, "intermediate_size": 128, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2,
        "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 1024,
    },
    "hardware": "cpu",
    "engine": {"num_gpu_blocks": 129, "max_model_len": 512, "max_num_seqs": 1},
    "workload": {
        "requests": 16, "arrivals": {"process": "poisson", "rate": 5000}, "input": 20, "output": 12,
        "classes": [{"name": "gold"}, {"name": "bronze", "weight": 3, "priority": 1}],
    },
}  # fmt: skip


def executed(clock: str, **changes: Any) -> Run:
    run = execute(Scenario.model_validate(SMALL | changes), device="cpu", clock=clock)  # type: ignore[arg-type]
    assert run.workload is not None
    found = replayed(run, run.workload)
    assert found.identical, found.first_difference
    return run


def causes(run: Run) -> set[int]:
    return set(run.records.requests["cause"][run.records.submitted].tolist())


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_bounded_queue_and_shed_classes(clock: str) -> None:
    run = executed(clock, admission={"max_queue_requests": 2, "when_full": "shed_lowest"})
    assert causes(run) >= {Cause.NONE, Cause.QUEUE_REQUESTS}
    assert run.summary["completed"] + run.summary["rejected"] == 16


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_impatient_clients_who_come_back(clock: str) -> None:
    clients = {"timeout": "12ms", "retries": 2, "backoff": "3ms"}
    run = executed(clock, client_behaviour=clients, admission={"queue_timeout": "6ms"})
    assert causes(run) & {Cause.CLIENT_TIMEOUT, Cause.QUEUE_TIMEOUT}
    tried_again = run.records.requests["status"][16:]
    assert (tried_again >= 0).any()


@pytest.mark.parametrize("clock", ["device", "wall"])
def test_a_ladder_behind_a_front_end(clock: str) -> None:
    ladder = [
        {"cap_output": 3, "on_at": 2, "off_below": 1},
        {"drop_stale_turns": 0, "on_at": 3, "off_below": 1},
        {"shed_class": "bronze", "on_at": 4, "off_below": 2},
    ]
    workload = SMALL["workload"] | {
        "prompts": {"kind": "sessions", "turns": 2, "think_time": "1ms"}, "requests": 24,
    }  # fmt: skip
    run = executed(
        clock, workload=workload, degradation={"ladder": ladder}, front_end={"workers": 2, "per_prompt_token": "10us"}
    )
    r = run.records.requests
    assert Cause.SHED in causes(run)
    capped = (r["status"] == Status.FINISHED) & (r["rung"] > 0)
    assert capped.any()
    assert set(r["output_tokens"][capped].tolist()) == {3}
    assert (r["ready_ns"] > r["arrival_ns"])[run.records.submitted].all()
