"""An SGLang launch and its log become the scenario that engine is."""

from __future__ import annotations

import pytest

import scenarios
from scenarios import InputError
from tests.scenarios.launch.conftest import SGLANG_LOG

COMMAND = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B"


def test_the_log_states_what_the_engine_resolved(sglang):
    launch = sglang(COMMAND, SGLANG_LOG)
    config = launch.scenario.engine_config()
    assert (config.num_gpu_blocks, config.block_size, config.usable_blocks) == (367_002, 1, 367_001)
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.max_model_len) == (2048, 8192, 40960)
    assert (config.batching, config.async_scheduling, config.enable_prefix_caching) == ("prefill_first", True, True)
    assert (launch.contradictions, launch.not_modelled) == ((), ())
    assert scenarios.loads(launch.to_yaml()) == launch.scenario


def test_flags_become_fields(sglang):
    launch = sglang(
        COMMAND
        + " --tp 2 --dp-size 2 --mem-fraction-static 0.8 --max-running-requests 64 --context-length 8192 --page-size 16"
        " --chunked-prefill-size 4096 --disable-radix-cache --disable-overlap-schedule --kv-cache-dtype fp8_e5m2"
        " --schedule-conservativeness 0.5 --quantization w8a8_fp8 --max-total-tokens 100000"
    )
    config = launch.scenario.engine_config()
    assert (launch.scenario.replicas, launch.scenario.router, config.tensor_parallel_size) == (2, "round_robin", 2)
    assert (config.max_num_seqs, config.max_model_len, config.max_num_batched_tokens) == (64, 8192, 4096)
    assert (config.block_size, config.num_gpu_blocks) == (16, 100_000 // 16 + 1)
    assert (config.enable_prefix_caching, config.async_scheduling, config.schedule_conservativeness) == (
        False,
        False,
        0.5,
    )
    assert (launch.scenario.dtype, launch.scenario.kv_dtype, launch.scenario.engine.gpu_memory_utilization) == (
        "fp8",
        "fp8",
        0.8,
    )


def test_chunks_may_be_switched_off_and_mixed_with_decodes(sglang):
    whole = sglang(
        COMMAND + " --chunked-prefill-size -1 --max-prefill-tokens 16384 --context-length 8192"
    ).scenario.engine_config()
    assert (whole.enable_chunked_prefill, whole.max_num_batched_tokens) == (False, 16384)
    assert sglang(COMMAND + " --enable-mixed-chunk").scenario.engine.batching == "chunked"


def test_the_log_wins_and_contradictions_are_named(sglang):
    launch = sglang(COMMAND + " --max-running-requests 4096 --max-total-tokens 500000", SGLANG_LOG)
    assert launch.scenario.engine_config().num_gpu_blocks == 367_002
    assert {c.field for c in launch.contradictions} == {"engine.max_num_seqs", "engine.num_gpu_blocks"}


def test_what_is_not_modelled_is_named_and_policies_that_are_not_fall_back(sglang):
    launch = sglang(
        COMMAND + " --speculative-algorithm EAGLE3 --enable-dp-attention --schedule-policy lof --host 0.0.0.0"
    )
    assert [n.flag for n in launch.not_modelled] == [
        "--speculative-algorithm EAGLE3",
        "--enable-dp-attention",
        "--schedule-policy lof",
    ]
    assert launch.scenario.engine.policy == "fcfs"
    assert launch.harmless == ("--host",)


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python -m sglang.launch_server", "--model-path MODEL"),
        ("vllm serve M", "from-vllm"),
        (COMMAND + " --page-size 0", "--page-size 0"),
        (COMMAND + " --mem-fraction-static a", "--mem-fraction-static a"),
        ("python -m sglang.launch_server --model deepseek-ai/DeepSeek-R1 --tp 8", "MLA"),
    ],
)
def test_a_launch_that_cannot_be_is_refused(sglang, command, named):
    with pytest.raises(InputError, match=named):
        sglang(command)


def test_longest_prefix_is_an_order_where_there_is_a_cache(sglang):
    assert sglang(COMMAND + " --schedule-policy lpm").scenario.engine.policy == "longest_prefix"
    without = sglang(COMMAND + " --schedule-policy lpm --disable-radix-cache").scenario
    assert (without.engine.policy, without.engine.enable_prefix_caching) == ("fcfs", False)
