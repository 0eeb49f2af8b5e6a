"""Settings of KV in the host's memory and of pinned prefixes: what they come to, and what is refused with the reason."""

from __future__ import annotations

import pytest

from scenarios import generate, loads
from scenarios.errors import InputError
from scenarios.schema import Scenario

TEXT = """
model: Llama-3.1-8B
hardware: H100
engine: {max_model_len: 8192}
workload: {requests: 10, arrivals: all_at_once, input: 100, output: 10, prompts: {kind: shared_prefix, prefix_tokens: 100}}
"""


def scenario(*overrides: str) -> Scenario:
    return loads(TEXT, overrides=overrides)


def test_gibibytes_become_blocks() -> None:
    """Llama-3.1-8B keeps 128 KiB of KV a token, so 2 MiB a block."""
    config = scenario("engine.preemption=swap", "engine.kv_offloading_size=1").engine_config()
    assert (config.swap_blocks, config.offload_blocks) == (2048, 512)
    wide = scenario("engine.tensor_parallel_size=2", "engine.preemption=swap", "engine.kv_offloading_size=1")
    assert (wide.engine_config().swap_blocks, wide.engine_config().offload_blocks) == (4096, 512)


def test_pins_are_cut_to_whole_blocks() -> None:
    config = scenario("engine.pinned_prefixes={sys:0: 100}").engine_config()
    assert config.pinned_prefixes == (("sys:0", 96),)
    assert config.blocks_for_anyone == config.usable_blocks - 6


def test_scenarios_that_keep_kv_on_the_device_keep_their_hash() -> None:
    """A sheet's link to the host is no part of it, unless something is copied over it."""
    fast, slow = (f"hardware={{base: H100, host_bandwidth: {rate}}}" for rate in ("5.0e+10", "1.0e+9"))
    assert scenario(fast).hash() == scenario(slow).hash()
    swap = "engine.preemption=swap"
    assert scenario(swap, fast).hash() != scenario(swap, slow).hash()
    assert scenario(swap, fast).hash() != scenario(fast).hash()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["engine.swap_space=4"], r"engine.swap_space: found with preemption recompute; it is for preemption: swap"),
        (
            ["engine.preemption=swap", "engine.swap_space=0.5"],
            r"engine.swap_space: 0.5 GiB hold 256 KV blocks of 16 tokens, but one sequence of max_model_len 8192 has 512; "
            r"give at least 1.01 GiB or lower max_model_len",
        ),
        (
            ["engine.preemption=swap", "engine.capacity_scheduler_policy=guaranteed_no_evict"],
            r"engine.preemption: found swap, but capacity_scheduler_policy guaranteed_no_evict never preempts",
        ),
        (
            ["engine.preemption=swap", "engine.kv_allocation=contiguous"],
            r"engine.preemption: found swap with kv_allocation contiguous; nothing is ever preempted",
        ),
        (
            ["engine.kv_offloading_size=4", "engine.enable_prefix_caching=false"],
            r"engine.kv_offloading_size: found with enable_prefix_caching false",
        ),
        (
            ["engine.pinned_prefixes={sys:0: 64}", "engine.enable_prefix_caching=false"],
            r"engine.pinned_prefixes: found with enable_prefix_caching false",
        ),
        (["engine.kv_offloading_size=0.0001"], r"engine.kv_offloading_size: found 0.0001 GiB, but one KV block of 16 tokens"),
        (["engine.pinned_prefixes={sys:0: 15}"], r"found 15 tokens, but whole blocks are pinned, and one has 16"),
        (
            ["engine.pinned_prefixes={sys:0: 8000}", "engine.num_gpu_blocks=400"],
            r"engine.pinned_prefixes: 500 KV blocks of 16 tokens would be pinned, but only 399 are usable",
        ),
        (
            ["engine.pinned_prefixes={sys:0: 6200}", "engine.num_gpu_blocks=400"],
            r"need 14 KV blocks of 16, 12 are usable beside 387 pinned ones",
        ),
        (
            ["engine.preemption=swap", "hardware={name: mine, memory_bytes: 8.0e+10, memory_bandwidth: 3.0e+12, flops: {bfloat16: 1.0e+15}}"],
            r"engine.preemption: needs hardware.host_bandwidth, which the sheet of mine does not state",
        ),
        (["engine.preemption=drop"], r"engine.preemption: "),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_the_reason(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        scenario(*overrides)


def test_a_pin_of_text_that_no_prompt_begins_with_is_refused() -> None:
    with pytest.raises(InputError, match=r"found 'sys:7', but no prompt begins with that text; .* begin with: sys:0"):
        generate(scenario("engine.pinned_prefixes={sys:7: 64}"))
    with pytest.raises(InputError, match=r"no two prompts begin alike"):
        generate(scenario("engine.pinned_prefixes={sys:0: 64}", "workload.prompts=unique"))
