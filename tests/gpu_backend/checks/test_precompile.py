"""What a run needs is compiled by processes beside each other, and their failures are only counted."""

from __future__ import annotations

import pytest

from gpu_backend.checks import kernel_cases
from gpu_backend.checks.kernel_cases import checks
from gpu_backend.checks.kernel_checks import Bench, Check
from gpu_backend.checks.kernel_times import timings
from gpu_backend.checks.precompile import Job, compile_in_parallel, jobs
from scenarios.models import CATALOG
from serving.config import EngineConfig

TINY = CATALOG["qwen3-tiny"]
CONFIG = EngineConfig(17, max_model_len=64, max_num_seqs=2, max_num_batched_tokens=16)


def test_jobs_cover_every_check_timing_and_engine_once() -> None:
    made = jobs([TINY], CONFIG, ["int8", "auto"], 6)
    for kind, items in (("checks", len(list(checks()))), ("timings", len(list(timings())))):
        parts = [job for job in made if job.kind == kind]
        taken = [i for job in parts for i in range(job.part, items, job.parts)]
        assert sorted(taken) == list(range(items))
    assert [(job.model, job.precision) for job in made if job.kind == "engine"] == [(TINY, "int8"), (TINY, "auto")]


def test_an_engine_of_one_layer_is_started() -> None:
    Job("engine", model=TINY, config=CONFIG).run("cpu", "torch")


def test_one_check_that_breaks_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def body(bench: Bench) -> None:
        seen.append(bench)
        if len(seen) == 1:
            raise RuntimeError("does not compile")

    monkeypatch.setattr(
        kernel_cases, "checks", lambda size: iter([Check("silu_mul", case, "float32", 1.0, body) for case in "abc"])
    )
    with pytest.raises(RuntimeError, match="does not compile"):
        Job("checks", 0, 1).run("cpu", "torch")
    assert len(seen) == 3


def test_processes_run_beside_each_other_and_failures_are_counted() -> None:
    found = compile_in_parallel([Job("checks", 2, 1000), Job("engine")], "cpu", "torch", most_seconds=60.0)
    assert {name: found[name] for name in ("processes", "failed", "ended")} == {"processes": 2, "failed": 1, "ended": 0}


def test_what_takes_too_long_is_ended() -> None:
    found = compile_in_parallel([Job("checks", 0, 1)], "cpu", "torch", most_seconds=0.01)
    assert (found["failed"], found["ended"]) == (0, 1)
