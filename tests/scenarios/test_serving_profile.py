"""Serving profiles: settings that follow the point, clients, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scenarios
from scenarios import serving_profile
from scenarios.arrivals import ClosedLoop
from scenarios.errors import InputError

POINT: dict[str, Any] = {"isl": 1024, "osl": 512, "concurrency": 8}
GOOD = """\
name: mine
description: A profile.
source: none
engine: {preset: vllm@0.12, max_num_batched_tokens: {concurrency: 1, input: 1, plus: 1500}}
client: {lengths: uniform, shortest: 0.8, rounds: 10}
"""


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        serving_profile.loads(text, source="mine.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", serving_profile.names())
def test_shipped_profiles_load_and_make_scenarios(name: str) -> None:
    profile = serving_profile.load(name)
    assert profile.name == name
    assert profile.source
    if profile.client is None:
        workload = {"requests": 1, "arrivals": "all_at_once", "input": 10, "output": 5}
        scenario = profile.scenario(
            model="qwen3-tiny", hardware="RTX-4090", workload=workload, engine={"max_model_len": 64}
        )
    else:
        scenario = profile.scenario(model="Llama-3.1-70B", hardware="H200", tensor_parallel_size=4, **POINT)
        assert scenario.workload.requests == 80
        assert scenario.engine_config().tensor_parallel_size == 4
    assert scenarios.loads(scenario.to_yaml()) == scenario


def test_numbers_follow_the_point() -> None:
    config = serving_profile.loads(GOOD).scenario(model="Qwen3-32B", hardware="H200", **POINT).engine_config()
    assert config.max_num_batched_tokens == 8 + 1024 + 1500
    shipped = serving_profile.load("gap-analysis-vllm").scenario(model="Qwen3-32B", hardware="H200", **POINT)
    assert shipped.engine_config().max_num_seqs == 8


def test_clients_may_react_late() -> None:
    late = GOOD.replace("rounds: 10", "rounds: 10, reaction: 3ms")
    arrivals = serving_profile.loads(late).scenario(model="Qwen3-8B", hardware="H100", **POINT).workload.arrivals
    assert isinstance(arrivals, ClosedLoop)
    assert arrivals.think_time.model_dump()["duration"] == "3ms"


def test_settings_of_some_points_apply_there_only() -> None:
    profile = serving_profile.load("inferencemax-trtllm")
    waits = [
        profile.engine_section(isl=1024, osl=osl, concurrency=4, tensor_parallel_size=size).get(
            "batch_wait_timeout_iters"
        )
        for osl, size in ((1024, 4), (1024, 8), (512, 4))
    ]
    assert waits == [20, None, None]


def test_lengths_are_whole_numbers_of_the_stated_share() -> None:
    scenario = serving_profile.load("inferencemax-vllm").scenario(
        model="Llama-3.1-70B", hardware="H200", isl=1000, osl=99, concurrency=64
    )
    workload = scenarios.generate(scenario)
    assert isinstance(scenario.workload.arrivals, ClosedLoop)
    assert len(workload) == 640
    assert workload.concurrency == 64
    assert (workload.prompt_tokens.min(), workload.prompt_tokens.max()) == (800, 1000)
    assert (workload.output_tokens.min(), workload.output_tokens.max()) == (79, 99)  # 79.2, rounded down
    assert np.array_equal(workload.max_tokens, workload.output_tokens)


def test_settings_of_one_measurement_win() -> None:
    profile = serving_profile.load("inferencemax-vllm")
    scenario = profile.scenario(
        model="Llama-3.1-8B", hardware="H100", engine={"dtype": "bfloat16", "num_gpu_blocks": 999}, seed=3, **POINT
    )
    assert (scenario.dtype, scenario.kv_dtype) == ("bfloat16", "fp8")
    assert scenario.engine_config().num_gpu_blocks == 999
    assert scenario.seed == 3


def test_a_profile_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD)
    assert serving_profile.load(file).scenario(model="Qwen3-8B", hardware="H100", **POINT).workload.requests == 80


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("max_num_batched_tokens", "max_batched_tokens", "mine.yaml: engine.max_batched_tokens: unknown field"),
        (
            "concurrency: 1, input",
            "clients: 1, input",
            "mine.yaml: engine.max_num_batched_tokens.clients: unknown field",
        ),
        ("plus: 1500", "plus: many", "engine.max_num_batched_tokens.plus: found 'many', but a number is needed"),
        ("vllm@0.12", "vllm@0.1", "engine.preset: unknown preset 'vllm@0.1': did you mean"),
        ("rounds: 10", "rounds: 0", "client.rounds: found 0"),
        ("shortest: 0.8", "shortest: 1.0", "client.shortest: found 1 with lengths uniform"),
        ("lengths: uniform", "lengths: normal", "client.lengths: unknown value 'normal'"),
        ("client:", "clients:", "clients: unknown field 'clients': did you mean 'client'?"),
        ("source: none\n", "", "source: is required and missing"),
        (
            "client:",
            "cases: [{when: {tp: 8}, engine: {block_size: 32}}]\nclient:",
            "cases[0].when.tp: unknown field 'tp'",
        ),
        (
            "client:",
            "cases: [{when: {input: 8}, engine: {block_size: 1024}}]\nclient:",
            "cases[0].engine.block_size: found 1024",
        ),
    ],
)
def test_mistakes_are_refused_by_file_and_path(old: str, new: str, expected: str) -> None:
    assert expected in refusal(GOOD.replace(old, new))


def test_points_that_say_too_little_are_refused() -> None:
    profile = serving_profile.load("inferencemax-vllm")
    with pytest.raises(InputError, match="its client needs isl, osl and concurrency"):
        profile.scenario(model="Llama-3.1-8B", hardware="H100", isl=10, osl=10)
    with pytest.raises(InputError, match=r"engine\.max_num_seqs follows concurrency, which is not stated"):
        profile.engine_section(isl=10, osl=10)
    with pytest.raises(InputError, match="come from a recording; give a workload"):
        serving_profile.load("llmservingsim-rtx4090").scenario(model="Llama-3.1-8B", hardware="RTX-4090")
    with pytest.raises(InputError, match=r"inferencemax-vllm: model: Llama-3.1-70B in fp8 does not fit"):
        profile.scenario(model="Llama-3.1-70B", hardware="L40S", **POINT)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'inferencemax-vllm'"):
        serving_profile.load("inferencemax-vlm")
