"""Scenarios in small precisions on the CPU engine: what computed them is told, and the schedule replays."""

import pytest

from scenarios import InputError, Scenario
from studies.calibrating import measured
from studies.reports.run_tables import about
from studies.run import backend, execute, replayed
from studies.validation import validate

pytest.importorskip("torch", reason="executions need the extra gpu")


def scenario(dtype: str = "auto", kv_cache_dtype: str = "auto", blocks: int = 96) -> Scenario:
    return Scenario.model_validate(
        {
            "model": "qwen3-tiny",
            "hardware": "cpu",
            "engine": {
                "num_gpu_blocks": blocks, "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 96,
                "dtype": dtype, "kv_cache_dtype": kv_cache_dtype,
            },
            "workload": {"requests": 10, "arrivals": "all_at_once", "input": 60, "output": 12},
            "seed": 5,
        }
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "kv"), [("int8", "int8"), ("int4", "fp8"), ("int8", "auto"), ("auto", "fp8")])
def test_small_precisions_are_executed_and_replayed(dtype: str, kv: str) -> None:
    run = execute(scenario(dtype, kv, blocks=24))
    assert run.workload is not None
    assert run.summary["completed"] == len(run.workload)
    assert run.summary["preemptions"] > 0
    assert replayed(run, run.workload).identical
    info = run.info["backend"]
    assert info["kv_dtype"] == ("bfloat16" if kv == "auto" else kv)
    if dtype != "auto":
        assert info["dtype"] == dtype
        assert dtype in info["linear"]
        assert "float32" in info["output_head"] or "bfloat16" in info["output_head"]
    assert ("kv" in info) == (kv != "auto")
    said = [line for line in about(run) if line.startswith("computed on")]
    assert len(said) == 1
    assert str(info["linear"]) in said[0]
    assert f"KV {info['kv_dtype']}" in said[0]


def test_a_prediction_from_a_profile_of_that_precision_decides_as_the_run_did() -> None:
    asked = scenario("int8", "int8")
    profile = measured(asked, backend(asked), grid="quick", repeats=1)
    assert (profile.dtype, profile.kv_dtype) == ("int8", "int8")
    assert "int8" in profile.source.details["linear"]
    found = validate(asked, profile=profile, repeats=1, ranking=False)
    assert found.schedule["identical"]
    assert found.executed[0].info["backend"]["dtype"] == "int8"
    with pytest.raises(InputError, match="dtype: measured with int8, but this run has"):
        validate(scenario(kv_cache_dtype="int8"), profile=profile, repeats=1, ranking=False)


@pytest.mark.parametrize(("field", "value"), [("dtype", "fp8"), ("dtype", "float16"), ("kv_cache_dtype", "float16")])
def test_precisions_that_the_cpu_engine_has_not_are_refused(field: str, value: str) -> None:
    asked = scenario()
    asked = asked.model_copy(update={"engine": asked.engine.model_copy(update={field: value})})
    with pytest.raises(InputError, match=f"engine.{field}: found {value}, but the CPU engine has"):
        execute(asked)
