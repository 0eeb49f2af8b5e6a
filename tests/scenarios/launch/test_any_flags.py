"""Whatever flags are combined, in whatever order, the scenario loads, or one sentence says why not."""

from __future__ import annotations

import contextlib
import json
import shlex

from hypothesis import given, settings
from hypothesis import strategies as st

import scenarios
from scenarios import InputError
from scenarios.launch import Options, from_sglang, from_vllm
from scenarios.launch.flags import Flag
from scenarios.launch.sglang_flags import SGLANG
from scenarios.launch.vllm_flags import VLLM

VALUES = {
    "tensor_parallel_size": ["1", "2", "4"], "replicas": ["1", "3"], "max_model_len": ["2048", "8k", "auto"],
    "max_num_seqs": ["1", "64"], "max_num_batched_tokens": ["256", "8K"], "block_size": ["1", "16", "64"],
    "num_gpu_blocks": ["300", "4000"], "gpu_memory_utilization": ["0.6", "0.95"], "mem_fraction_static": ["0.6", "0.9"],
    "kv_bytes": ["4G"], "kv_tokens": ["5000", "100k"], "long_prefill_token_threshold": ["0", "512"],
    "policy": ["fcfs", "priority", "lpm"], "watermark": ["0.01"], "kv_offloading_size": ["0", "8"], "dtype": ["auto", "half", "bfloat16"],
    "quantization": ["fp8", "awq", "compressed-tensors"], "kv_cache_dtype": ["auto", "fp8", "fp8_e4m3", "fp4_e2m1"],
    "speculation": ['{"method": "ngram", "num_speculative_tokens": 2}', '{"method": "eagle", "num_speculative_tokens": 2}'],
    "platform": ["cuda"], "positions": ['{"rope_scaling": {"rope_type": "yarn"}}'],
    "chunked_prefill_size": ["-1", "2048"], "max_prefill_tokens": ["4096"], "schedule_conservativeness": ["0.3", "1"],
}  # fmt: skip
"""Values that the engines take, by setting."""

MODEL = "Qwen/Qwen3-8B"


def spelled(flag: Flag) -> st.SearchStrategy[list[str]]:
    """Words of one flag in one of its spellings."""
    dashes = [name if name.startswith("-") else f"--{name}" for name in flag.names]
    dashes += [name.replace("-", "_").replace("__", "--", 1) for name in dashes if name.startswith("--")]
    names = st.sampled_from(dashes)
    if flag.kind == "switch":
        return st.one_of(
            names.map(lambda name: [name]),
            st.sampled_from(flag.names).map(lambda name: [name if name.startswith("-") else f"--no-{name}"]),
        )
    values = VALUES.get(flag.sets or "", ["{}"] if flag.kind == "json" else ["1", "some-value"])
    joined = st.booleans()
    return st.builds(
        lambda name, value, equals: [f"{name}={value}"] if equals else [name, value],
        names,
        st.sampled_from(values),
        joined,
    )


def words(table) -> st.SearchStrategy[list[list[str]]]:
    flags = [flag for flag in table.flags if flag.sets not in ("model", "config")]
    one = st.sampled_from(range(len(flags))).flatmap(lambda at: spelled(flags[at]))
    modelled = [flag for flag in flags if flag.sets]
    likely = st.sampled_from(range(len(modelled))).flatmap(lambda at: spelled(modelled[at]))
    return st.lists(st.one_of(one, likely), max_size=12)


def loads(launch) -> None:
    assert scenarios.loads(launch.to_yaml()) == launch.scenario
    assert json.loads(json.dumps(launch.to_dict()))["scenario"]["model"]


@settings(max_examples=150, deadline=None)
@given(words(VLLM), st.integers(0, 12))
def test_any_flags_of_vllm_give_a_scenario_that_loads(flags, at):
    flags.insert(min(at, len(flags)), ["--model", MODEL])
    command = "vllm serve " + " ".join(shlex.join(flag) for flag in flags)
    launch = from_vllm(command, options=Options(hardware="H200"))
    loads(launch)
    assert not launch.unknown


@settings(max_examples=150, deadline=None)
@given(words(SGLANG), st.integers(0, 12))
def test_any_flags_of_sglang_give_a_scenario_that_loads(flags, at):
    flags.insert(min(at, len(flags)), ["--model-path", MODEL])
    command = "python -m sglang.launch_server " + " ".join(shlex.join(flag) for flag in flags)
    launch = from_sglang(command, options=Options(hardware="H200"))
    loads(launch)
    assert not launch.unknown


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=60),
    st.sampled_from(["", f"vllm serve {MODEL} ", "vllm serve ", f"vllm serve {MODEL} --max-num-seqs "]),
)
def test_any_text_is_read_or_refused_in_one_sentence(text, before):
    with contextlib.suppress(InputError):
        loads(from_vllm(before + text, options=Options(hardware="H200")))
