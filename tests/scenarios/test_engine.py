"""What an engine section resolves to: presets, explicit fields, KV blocks from memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic import ValidationError

import scenarios
from scenarios import Scenario
from scenarios.hardware import CATALOG, hardware
from scenarios.kv_memory import kv_blocks
from scenarios.models import model
from serving.plan import StepShape
from sim.roofline import Roofline

Build = Callable[..., Scenario]


@pytest.mark.parametrize(
    ("device", "seqs", "budget"),
    [("H100", 1024, 8192), ("H200", 1024, 8192), ("B200", 1024, 8192), ("A100-80G", 256, 2048), ("L40S", 256, 2048),
     ("RTX-4090", 256, 2048), ("RTX-PRO-6000", 1024, 8192), ("cpu", 128, 2048)],
)  # fmt: skip
def test_preset_resolves_batches_as_vllm_does(build: Build, device: str, seqs: int, budget: int) -> None:
    config = build(hardware=device).engine_config()
    assert (config.max_num_seqs, config.max_num_batched_tokens) == (seqs, budget)
    assert config.block_size == 16
    assert config.enable_prefix_caching
    assert config.scheduler_reserve_full_isl


def test_explicit_fields_win_over_the_preset(build: Build) -> None:
    config = build(hardware="H100", engine={"max_num_seqs": 7, "block_size": 32, "watermark": 0.01}).engine_config()
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.block_size) == (7, 8192, 32)
    assert config.watermark == 0.01


def test_default_sequences_never_exceed_the_budget(build: Build) -> None:
    assert build(hardware="H100", engine={"max_num_batched_tokens": 100}).engine_config().max_num_seqs == 100


def test_without_chunking_the_default_budget_holds_the_window(build: Build) -> None:
    config = build(hardware="L40S", engine={"enable_chunked_prefill": False}).engine_config()
    assert config.max_num_batched_tokens == config.max_model_len == 8192


def test_kv_blocks_are_what_memory_leaves() -> None:
    spec, sheet = model("Llama-3.1-8B"), hardware("h100")
    blocks = kv_blocks(spec, sheet, "bfloat16", "bfloat16", 0.9, 16)
    assert blocks == int((0.9 * sheet.memory_bytes - 2 * spec.parameters() - 3.5e9) // (16 * 131072))
    assert kv_blocks(spec, sheet, "bfloat16", "fp8", 0.9, 16) == pytest.approx(2 * blocks, abs=1)


def test_kv_blocks_of_a_public_run_on_an_rtx_4090() -> None:
    """A vLLM 0.19 server on that card, utilisation 0.9, reported 2,588 blocks of 16 tokens: the sheet's reserve is set on it."""
    blocks = kv_blocks(model("Llama-3.1-8B"), hardware("RTX 4090"), "bfloat16", "bfloat16", 0.9, 16)
    assert blocks == pytest.approx(2588, rel=0.01)


def test_given_blocks_win_over_memory(build: Build) -> None:
    config = build(engine={"num_gpu_blocks": 100}).engine_config()
    assert (config.num_gpu_blocks, config.usable_blocks) == (100, 99)


def test_weights_that_do_not_fit_are_refused(build: Build) -> None:
    with pytest.raises(ValueError, match=r"141\.1 GB of weights"):
        build(model="Llama-3.1-70B", hardware="H100")
    assert build(model="Llama-3.1-70B", hardware="H100", engine={"dtype": "fp8", "gpu_memory_utilization": 0.98})


def test_window_is_cut_to_memory_unless_it_was_asked_for(build: Build) -> None:
    config = build(model="Llama-3.1-8B", hardware="RTX-4090").engine_config()
    assert config.max_model_len == config.usable_blocks * 16 < 131072
    with pytest.raises(ValueError, match="gpu_memory_utilization"):
        build(model="Llama-3.1-8B", hardware="RTX-4090", engine={"max_model_len": 100_000})


def test_precisions_resolve_to_names(build: Build) -> None:
    assert (build().dtype, build().kv_dtype) == ("bfloat16", "bfloat16")
    low = build(hardware="H100", engine={"dtype": "fp8"})
    assert (low.dtype, low.kv_dtype) == ("fp8", "bfloat16")
    assert build(engine={"dtype": "float32"}).kv_dtype == "float32"


def test_a_sheet_may_be_given_or_start_from_a_named_one(build: Build) -> None:
    own = {"name": "mine", "memory_bytes": 64e9, "memory_bandwidth": 1e12, "flops": {"bfloat16": 200e12}}
    assert build(hardware=own).hardware.name == "mine"
    changed = build(hardware={"base": "H100", "memory_bandwidth": 4e12}).hardware
    assert changed.memory_bandwidth == 4e12
    assert changed.flops == CATALOG["H100"].flops


def test_every_sheet_is_in_si_units() -> None:
    for sheet in CATALOG.values():
        assert 5e9 < sheet.memory_bytes < 3e11
        assert 5e9 < sheet.memory_bandwidth < 1e13
        assert all(1e10 < peak < 1e16 for peak in sheet.flops.values())


def test_price_follows_the_hardware_unless_given(build: Build) -> None:
    assert build(hardware="H100").prices.gpu_hour == CATALOG["H100"].usd_per_hour
    assert build(hardware="H100", prices={"gpu_hour": 9.5}).prices.gpu_hour == 9.5
    again = scenarios.loads(build(hardware="H100").to_yaml(), overrides=["hardware=H200"])
    assert again.prices.gpu_hour == CATALOG["H200"].usd_per_hour


class TestLengthsThatCannotFit:
    """Fixed lengths are refused before the run; the true output length does not count, what clients declare does."""

    @pytest.mark.parametrize(
        ("prompt", "output", "fits"),
        [(112, 1, True), (97, 16, True), (113, 1, False), (112, 2, False), (97, 17, False)],
    )
    def test_the_last_token_needs_no_kv(self, build: Build, prompt: int, output: int, fits: bool) -> None:
        changes = {"engine": {"num_gpu_blocks": 8}, "workload": {"input": prompt, "output": output}}
        if fits:
            build(**changes)
        else:
            with pytest.raises(ValueError, match="could ever run it"):
                build(**changes)

    def test_declared_tokens_count_and_are_blamed(self, build: Build) -> None:
        with pytest.raises(ValueError, match="13 KV blocks") as caught:
            build(engine={"num_gpu_blocks": 8}, workload={"input": 97, "output": 2, "max_tokens": 100})
        assert caught.value.errors()[0]["ctx"]["path"] == ("workload", "max_tokens")  # type: ignore[attr-defined]

    def test_prefixes_and_earlier_turns_count(self, build: Build) -> None:
        prefix = {"kind": "shared_prefix", "prefix_tokens": 1000}
        with pytest.raises(ValueError, match="prompt of 1100 tokens"):
            build(engine={"max_model_len": 1024}, workload={"prompts": prefix})
        with pytest.raises(ValueError, match="turn 9: prompt of 1060 tokens"):
            build(engine={"max_model_len": 1024}, workload={"prompts": {"kind": "sessions", "turns": 9}})

    def test_random_lengths_are_refused_only_if_none_fits(self, build: Build) -> None:
        some = {"distribution": "uniform", "min": 10, "max": 9000}
        build(workload={"input": some})
        with pytest.raises(ValueError, match="8192"):
            build(workload={"input": some | {"min": 8500}})


def test_the_roofline_takes_a_sheets_assumptions(build: Build) -> None:
    shape = StepShape(prefill=((512, 0),), sampled=1)
    scenario = build(hardware={"base": "H100", "compute_efficiency": 0.375, "step_overhead": 0.5})
    slow = Roofline(scenario.model, scenario.hardware)
    base = Roofline(scenario.model, hardware("H100"))
    assert slow.step_ns(shape) > base.step_ns(shape) + 0.49e9


NGRAM = {"method": "ngram", "k": 4, "acceptance": 0.7}
DRAFT = {"method": "draft", "k": 4, "acceptance": 0.7, "draft_cost": 0.1}


def test_speculation_reaches_the_scheduler(build: Build) -> None:
    config = build(hardware="H100", engine={"speculation": NGRAM | {"off_above": 32}}).engine_config()
    assert (config.speculation, config.num_speculative_tokens, config.speculation_off_above) == ("ngram", 4, 32)
    plain = build(hardware="H100").engine_config()
    assert (plain.speculation, plain.num_speculative_tokens, plain.async_scheduling) == ("none", 0, False)


@pytest.mark.parametrize(
    ("device", "speculation", "asynchronous"),
    [("H100", None, True), ("H100", DRAFT, True), ("H100", NGRAM, False), ("cpu", None, False), ("cpu", DRAFT, False)],
)
def test_asynchronous_scheduling_is_resolved_as_vllm_does(
    build: Build, device: str, speculation: dict[str, object] | None, asynchronous: bool
) -> None:
    built = build(hardware=device, engine={"async_scheduling": True, "speculation": speculation})
    assert built.engine_config().async_scheduling == asynchronous
    assert (built.engine.why_synchronous(built.hardware) is None) == asynchronous


def test_a_draft_model_takes_memory_for_weights_and_kv() -> None:
    big, small, sheet = model("Qwen3-14B"), model("Qwen3-0.6B"), hardware("H100")
    blocks = kv_blocks(big, sheet, "bfloat16", "bfloat16", 0.9, 16, small)
    left = 0.9 * sheet.memory_bytes - big.weight_bytes("bfloat16") - small.weight_bytes("bfloat16") - 3.5e9
    per_token = big.kv_bytes_per_token("bfloat16") + small.kv_bytes_per_token("bfloat16")
    assert blocks == int(left // (16 * per_token))


def test_a_draft_model_of_another_vocabulary_is_refused(build: Build) -> None:
    draft = {"method": "draft", "acceptance": 0.7, "draft_model": "SmolLM2-135M"}
    with pytest.raises(ValidationError, match="found SmolLM2-135M with 49152 tokens in its vocabulary, but"):
        build(hardware="H100", engine={"speculation": draft})


@pytest.mark.parametrize(("speculation", "least"), [(NGRAM, 5), (DRAFT, 6)])
def test_a_budget_that_cannot_hold_a_row_with_its_drafts_is_refused(
    build: Build, speculation: dict[str, object], least: int
) -> None:
    def of(budget: int) -> Scenario:
        return build(
            hardware="H100", engine={"speculation": speculation, "max_num_batched_tokens": budget, "max_num_seqs": 2}
        )

    assert of(least).engine_config().max_num_batched_tokens == least
    with pytest.raises(ValidationError, match=f"found {least - 1}, but a row with its 4 drafts takes 5 tokens"):
        of(least - 1)
