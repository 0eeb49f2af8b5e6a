"""Classes, tenants, mixtures and changing rates on the CPU engine: every request is of its class there too, and the schedule
replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import studies
from scenarios import Scenario
from studies import results
from studies.results import Run
from studies.run import replayed
from studies.workload_files import load_workload

pytest.importorskip("torch", reason="executions need the extra gpu")

CLASSES = [
    {"name": "chat", "weight": 2, "input": 20, "output": 6, "priority": 0, "slo": {"ttft": "10s"},
     "prompts": {"kind": "sessions", "turns": 2, "system": {"prefix_tokens": 48}}},
    {"name": "batch", "weight": 1, "input": 150, "output": 16, "priority": 1, "slo": {}, "difficulty": 0.8},
]  # fmt: skip
TENANTS = [{"name": "app"}, {"name": "jobs", "classes": {"batch": 1}}]
CHANGING: dict[str, dict[str, Any]] = {
    "diurnal": {"process": "diurnal", "rate": 8, "peak_to_mean": 1.9, "period": "2s", "duration": "1s"},
    "ramp": {"process": "ramp", "start_rate": 2, "end_rate": 10, "duration": "1s"},
    "spike": {"process": "spike", "rate": 2, "peak_rate": 20, "start": "300ms", "length": "200ms", "duration": "1s"},
    "on_off": {"process": "on_off", "rate": 12, "on": "200ms", "off": "300ms", "duration": "1s"},
}


def executed(workload: dict[str, Any], **engine: Any) -> Run:
    settings = {"num_gpu_blocks": 120, "block_size": 16, "max_model_len": 400, "max_num_seqs": 4} | engine
    data = {"model": "qwen3-tiny", "hardware": "cpu", "engine": settings, "workload": workload, "seed": 2}
    run = studies.execute(Scenario.model_validate(data), device="cpu")
    assert run.workload is not None
    assert run.summary["completed"] == len(run.workload)
    assert replayed(run, run.workload).identical
    return run


@pytest.mark.parametrize("policy", ["priority", "deadline"])
def test_classes_with_priorities_and_deadlines(policy: str, tmp_path: Path) -> None:
    workload = {
        "requests": 16,
        "arrivals": "all_at_once",
        "input": 30,
        "output": 8,
        "classes": CLASSES,
        "tenants": TENANTS,
    }
    run = executed(workload, policy=policy)
    assert list(run.summary["by_class"]) == ["chat", "batch"]
    assert sum(found["completed"] for found in run.summary["by_class"].values()) == 16
    scheduled = run.records.requests["scheduled_ns"]
    opening = run.workload.follows < 0  # type: ignore[union-attr]
    of_class = run.records.service_class
    assert of_class is not None
    # Everything is there at the start, and whoever has the tighter promise goes first.
    chat, batch = (np.sort(scheduled[opening & (of_class == k)]) for k in (0, 1))
    assert chat.max() <= batch[0]
    # Second turns find what the first one said.
    assert run.records.requests["cached_tokens"][~opening].min() >= 48
    folder = results.save(run, tmp_path / "out")
    again = results.load(folder)
    workload_again = load_workload(folder)
    assert replayed(again, workload_again).identical


@pytest.mark.parametrize("process", CHANGING)
def test_a_mixture_with_a_changing_rate(process: str) -> None:
    documents = {"requests": 3, "arrivals": {"process": "constant", "rate": 5}, "input": 120, "output": 8}
    run = executed(
        {"mix": {"callers": {"arrivals": CHANGING[process], "input": 24, "output": 6}, "documents": documents}}
    )
    assert run.summary["by_class"]["documents"]["completed"] == 3
    assert run.summary["by_class"]["callers"]["completed"] == len(run.workload) - 3  # type: ignore[arg-type]
