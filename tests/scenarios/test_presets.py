"""Presets: each engine version's defaults and its scheduling, and that no older scenario changes by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import scenarios
from scenarios import Scenario
from scenarios.hardware import GIB, hardware
from scenarios.models import model
from scenarios.presets import ALIASES, PRESETS
from serving.batching import BATCHINGS
from serving.capacity import CAPACITIES
from serving.config import EngineConfig

Build = Callable[..., Scenario]


def config_of(build: Build, preset: str, device: str = "H100", **engine: object) -> EngineConfig:
    return build(model="Qwen3-8B", hardware=device, engine={"preset": preset, **engine}).engine_config()


@pytest.mark.parametrize(
    ("preset", "device", "seqs", "budget", "block", "full", "ahead"),
    [
        ("vllm@0.10.2", "H100", 1024, 8192, 16, False, False),
        ("vllm@0.10.2", "L40S", 256, 2048, 16, False, False),
        ("vllm@0.12", "H100", 1024, 8192, 16, False, False),
        ("vllm@0.19", "RTX-4090", 256, 2048, 16, True, True),
        ("vllm@0.32", "H100", 1024, 8192, 16, True, False),
        ("sglang@0.5", "H200", 2048, 8192, 1, True, True),
        ("sglang@0.5", "B200", 2048, 16384, 1, True, True),
        ("sglang@0.5", "RTX-4090", 2048, 2048, 1, True, True),
        ("trtllm@1.0", "H100", 2048, 8192, 32, True, True),
    ],
)
def test_defaults_are_the_versions_own(
    build: Build, preset: str, device: str, seqs: int, budget: int, block: int, full: bool, ahead: bool
) -> None:
    config = config_of(build, preset, device, dtype="fp8")
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.block_size) == (seqs, budget, block)
    assert (config.scheduler_reserve_full_isl, config.async_scheduling) == (full, ahead)


def test_sglang_runs_prompts_alone_and_expects_answers(build: Build) -> None:
    config = config_of(build, "sglang")
    assert (config.batching, config.capacity_scheduler_policy) == ("prefill_first", "new_token_ratio")


def test_trtllm_runs_prompts_whole_and_evicts_nobody(build: Build) -> None:
    config = config_of(build, "trtllm")
    assert (config.batching, config.enable_chunked_prefill) == ("chunked", False)
    assert config.capacity_scheduler_policy == "guaranteed_no_evict"


def test_what_is_given_wins_over_the_preset_and_is_written_out(build: Build) -> None:
    scenario = build(hardware="H100", engine={"preset": "sglang", "async_scheduling": False})
    assert not scenario.engine_config().async_scheduling
    assert scenario.engine_config().batching == "prefill_first"
    assert "batching" not in scenario.to_yaml()
    assert scenarios.loads(scenario.to_yaml()) == scenario


def test_another_preset_brings_its_own_fields(build: Build) -> None:
    text = build(hardware="H100", engine={"preset": "sglang"}).to_yaml()
    changed = scenarios.loads(text, overrides=["engine.preset=trtllm"])
    assert changed.engine.batching == "chunked"
    assert changed == build(hardware="H100", engine={"preset": "trtllm"})


@pytest.mark.parametrize(("alias", "full"), ALIASES.items())
def test_an_engine_alone_is_its_newest_version(build: Build, alias: str, full: str) -> None:
    named, bare = (build(hardware="H100", engine={"preset": name}) for name in (full, alias))
    assert named.hash() == bare.hash()
    assert bare.engine.preset == full


def test_kv_memory_follows_the_engines_own_rule(build: Build) -> None:
    spec, sheet = model("Qwen3-8B"), hardware("H100")
    weights, token = spec.weight_bytes(), spec.kv_bytes_per_token()
    trtllm = config_of(build, "trtllm").num_gpu_blocks
    assert trtllm == int(0.9 * (sheet.memory_bytes - weights - 3.5e9) // (32 * token))
    share = round(1 - (GIB + 1.5 * 2**20 * 8192) / sheet.memory_bytes, 3)
    assert config_of(build, "sglang").num_gpu_blocks == int((share * sheet.memory_bytes - weights - 1e9) // token)
    stated = config_of(build, "sglang", gpu_memory_utilization=0.8).num_gpu_blocks
    assert stated == int((0.8 * sheet.memory_bytes - weights - 1e9) // token)


def test_presets_name_what_there_is() -> None:
    for preset in PRESETS.values():
        assert preset.fields.get("batching", "chunked") in BATCHINGS
        assert preset.fields.get("capacity_scheduler_policy", "max_utilization") in CAPACITIES
        assert set(preset.batches) == {"large", "small", "cpu"}
    assert set(ALIASES.values()) <= set(PRESETS)


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"preset": "vllm@0.11"}, r"unknown preset 'vllm@0\.11': did you mean 'vllm@0\.1"),
        (
            {"batching": "static", "async_scheduling": True},
            "modelled for batching chunked, decode_first, prefill_first",
        ),
        ({"batch_wait_timeout_iters": 3}, "both batch_wait fields are above 0"),
        (
            {"batching": "prefill_first", "batch_wait_timeout_iters": 3, "batch_wait_max_tokens_ratio": 0.5},
            "prompts beside decodes are batching chunked",
        ),
        ({"capacity_scheduler_policy": "guaranteed"}, "did you mean 'guaranteed_no_evict'"),
        (
            {"preset": "trtllm", "speculation": {"method": "ngram", "k": 2, "acceptance": 0.5}},
            "drafts are modelled for max_utilization",
        ),
    ],
)
def test_what_is_not_modelled_together_is_refused(build: Build, engine: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(hardware="H100", engine=engine)


@pytest.mark.parametrize("name", [*PRESETS, *ALIASES])
def test_a_preset_is_an_engine_section_by_itself(name: str) -> None:
    short, long = (scenarios.load("demo", overrides=(f"engine={given}",)) for given in (name, f"{{preset: {name}}}"))
    assert short == long
    assert scenarios.loads(short.to_yaml()) == short
    changed = scenarios.load("demo", overrides=(f"engine={name}", "engine.max_num_seqs=3"))
    assert (changed.engine.preset, changed.engine.max_num_seqs) == (short.engine.preset, 3)
