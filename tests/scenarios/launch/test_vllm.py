"""A vLLM launch and its log become the scenario that engine is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import scenarios
from scenarios.launch import Options, from_vllm
from scenarios.presets import PRESETS
from tests.scenarios.launch.conftest import VLLM_LOG

COMMAND = "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 256 --max-num-batched-tokens 2048 --max-model-len 32768 --dtype bfloat16 --seed 42"


def fields(launch):
    return launch.scenario.model_dump(mode="json", exclude_unset=True)["engine"]


def origin(launch, field):
    return next(taken.origin for taken in launch.taken if taken.field == field)


def test_the_public_rtx_4090_run_comes_out_of_its_command_and_its_kv_line(vllm):
    launch = vllm(COMMAND, VLLM_LOG, hardware="RTX-4090")
    config = launch.scenario.engine_config()
    assert (config.num_gpu_blocks, config.block_size, config.usable_blocks) == (2588, 16, 2587)
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.max_model_len) == (256, 2048, 32768)
    assert (config.async_scheduling, config.enable_prefix_caching, config.scheduler_reserve_full_isl) == (
        True,
        True,
        True,
    )
    assert (launch.scenario.model.name, launch.scenario.engine.preset) == ("Llama-3.1-8B", "vllm@0.19")
    assert (launch.contradictions, launch.not_modelled, launch.unknown, launch.notes) == ((), (), (), ())
    assert origin(launch, "engine.num_gpu_blocks") == "log"
    assert origin(launch, "engine.max_num_seqs") == "command"


def test_the_recorded_settings_of_that_run_are_reached_from_an_equivalent_command():
    data = Path(os.environ.get("SERVETWIN_DATA") or Path(__file__).parents[4] / "shared" / "data")
    meta = data / "measured" / "rtx4090-llama-3.1-8b" / "meta.json"
    if not meta.is_file():
        pytest.skip(f"no public runs in {data.name}/: set SERVETWIN_DATA to the folder that holds measured/")
    run = json.loads(meta.read_text())
    asked, kept = run["engine_kwargs"], run["resolved_config"]
    words = [
        f"--{name.replace('_', '-')} {value}" for name, value in asked.items() if name != "model" and value is not False
    ]
    log = meta.parent / "none"
    command = (
        f"vllm serve {asked['model']} {' '.join(words)} --num-gpu-blocks-override {run['kv_cache']['num_gpu_blocks']}"
    )
    launch = from_vllm(command, options=Options(hardware="RTX-4090", version=run["vllm_version"]))
    config, scheduler = launch.scenario.engine_config(), kept["scheduler_config"]
    assert config.num_gpu_blocks == run["kv_cache"]["num_gpu_blocks"]
    assert config.num_gpu_blocks * config.block_size == run["kv_cache"]["num_kv_tokens"]
    for name in ("async_scheduling", "enable_chunked_prefill", "max_num_batched_tokens", "max_num_seqs", "policy",
                 "long_prefill_token_threshold", "scheduler_reserve_full_isl"):  # fmt: skip
        assert getattr(config, name) == scheduler[name], name
    assert (launch.not_modelled, launch.unknown, log.exists()) == ((), (), False)


def test_the_log_wins_over_the_command_and_contradictions_are_named(vllm):
    launch = vllm(
        COMMAND.replace("256", "64") + " --num-gpu-blocks-override 100 --enforce-eager", VLLM_LOG, hardware="RTX-4090"
    )
    config = launch.scenario.engine_config()
    assert (config.max_num_seqs, config.num_gpu_blocks) == (256, 2588)
    named = {c.field for c in launch.contradictions}
    assert named == {"engine.max_num_seqs", "engine.num_gpu_blocks", "enforce-eager"}
    assert all("log's is used" in c.used for c in launch.contradictions)


def test_the_log_alone_fills_what_the_command_leaves_open(vllm):
    launch = vllm("vllm serve meta-llama/Llama-3.1-8B", VLLM_LOG, hardware="RTX-4090")
    assert origin(launch, "engine.max_num_seqs") == "log"
    assert launch.scenario.engine_config().max_num_seqs == 256


@pytest.mark.parametrize(
    ("version", "preset", "told"),
    [("0.10.2", "vllm@0.10.2", False), ("0.19.3", "vllm@0.19", False), ("0.11.0", "vllm@0.12", True),
     ("0.18.1rc1.dev10+gc86b17cfe", "vllm@0.19", True), ("v0.33.0", "vllm@0.32", True), ("0.8.5.post1", "vllm@0.10.2", True)],
)  # fmt: skip
def test_the_nearest_preset_is_taken_and_told(vllm, version, preset, told):
    launch = vllm("vllm serve Qwen/Qwen3-8B", version=version)
    assert launch.scenario.engine.preset == preset
    assert any("nearest" in note for note in launch.notes) == told


def test_without_a_version_the_newest_preset_is_assumed(vllm):
    launch = vllm("vllm serve Qwen/Qwen3-8B")
    assert origin(launch, "engine.preset") == "assumed"
    assert launch.scenario.engine.preset == "vllm@0.32"
    assert fields(launch)["async_scheduling"] is True
    assert vllm("vllm serve Qwen/Qwen3-8B --no-async-scheduling").scenario.engine.async_scheduling is False


def test_an_images_tag_states_the_version(vllm):
    assert (
        vllm("docker run --gpus all vllm/vllm-openai:v0.12.0 --model Qwen/Qwen3-8B").scenario.engine.preset
        == "vllm@0.12"
    )


@pytest.mark.parametrize(
    ("named", "model", "dtype"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B", "auto"),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "Llama-3.1-70B", "fp8"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama-3.1-70B", "auto"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "Llama-3.1-8B", "int8"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen3-30B-A3B", "fp8"),
        ("Qwen/Qwen3-32B-AWQ", "Qwen3-32B", "int4"),
        ("/models/hub/models--Qwen--Qwen3-8B/snapshots/0123456789abcdef", "Qwen3-8B", "auto"),
        ("./models/Qwen3-8B/", "Qwen3-8B", "auto"),
    ],
)
def test_checkpoints_are_known_by_their_names(vllm, named, model, dtype):
    launch = vllm(f"vllm serve {named} -tp 4")
    assert (launch.scenario.model.name, launch.scenario.engine.dtype) == (model, dtype)


def test_a_config_describes_other_models_and_their_precision(vllm, tmp_path):
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
        "max_position_embeddings": 32768, "quantization_config": {"quant_method": "awq", "bits": 4},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    launch = vllm("vllm serve Qwen/Qwen2.5-7B-Instruct-AWQ", model_config=str(tmp_path / "config.json"))
    assert (launch.scenario.model.num_layers, launch.scenario.engine.dtype) == (28, "int4")
    assert scenarios.loads(launch.to_yaml()) == launch.scenario


def test_memory_may_be_stated_in_bytes(vllm):
    launch = vllm("vllm serve meta-llama/Llama-3.1-8B -tp 2 --kv-cache-memory-bytes 10G")
    assert launch.scenario.engine.num_gpu_blocks == 10 * 2**30 // (16 * 131072 // 2)


def test_parallel_engines_become_replicas_and_devices(vllm):
    scenario = vllm("vllm serve Qwen/Qwen3-32B -tp 2 -dp 3").scenario
    assert (scenario.replicas, scenario.engine.tensor_parallel_size, scenario.router) == (3, 2, "least_requests")


def test_a_cpu_server_is_read_with_its_memory(vllm):
    launch = vllm("VLLM_CPU_KVCACHE_SPACE=2 vllm serve Qwen/Qwen3-0.6B --device cpu", hardware=None)
    config = launch.scenario.engine_config()
    assert (launch.scenario.hardware.name, config.block_size) == ("cpu", 128)
    assert config.num_gpu_blocks == 2**31 // (128 * 2 * 28 * 1024 * 2)
    assert not config.async_scheduling


@pytest.mark.parametrize(
    ("config", "method"),
    [
        ('{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}', "ngram"),
        ('{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}', "draft"),
        ('{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3}', None),
        ('{"model": "x/unknown-draft", "num_speculative_tokens": 3}', None),
    ],
)
def test_drafts_that_are_modelled_are_taken_and_others_named(vllm, config, method):
    launch = vllm(f"vllm serve Qwen/Qwen3-8B --speculative-config '{config}'")
    given = launch.scenario.engine.speculation
    assert (given.method if given else None) == method
    if method:
        assert given.k == 3
        assert any("acceptance" in note for note in launch.notes)
    else:
        assert "--speculative-config" in launch.not_modelled[0].flag


def test_stretched_positions_are_taken_with_the_window(vllm):
    override = '{"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}'
    launch = vllm(f"vllm serve Qwen/Qwen3-8B --max-model-len 131072 --hf-overrides '{override}'")
    assert launch.scenario.engine_config().max_model_len == 131072
    assert launch.scenario.model.max_position_embeddings == 131072
    assert scenarios.loads(launch.to_yaml()) == launch.scenario


def test_every_flag_that_is_not_modelled_is_named_with_its_effect(vllm):
    launch = vllm("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve Qwen/Qwen3-8B -pp 2 --enforce-eager --kv-cache-dtype nvfp4 "
                  "--scheduling-policy mine --port 1 --stream-interval 5 --quantization compressed-tensors")  # fmt: skip
    flags = [n.flag for n in launch.not_modelled]
    assert flags == ["-pp 2", "--enforce-eager", "--kv-cache-dtype nvfp4", "--scheduling-policy mine", "--stream-interval 5",
                     "--quantization compressed-tensors", "VLLM_ATTENTION_BACKEND=FLASHINFER"]  # fmt: skip
    text = launch.to_yaml()
    for n in launch.not_modelled:
        assert n.flag in text
    assert launch.harmless == ("--port",)


def test_the_file_says_where_everything_comes_from_and_that_the_workload_is_a_placeholder(vllm):
    launch = vllm(COMMAND + " --api-key sk-secret", VLLM_LOG, hardware="RTX-4090")
    text = launch.to_yaml()
    assert "engine.num_gpu_blocks: 2588 <- GPU KV cache size: 41,408 tokens" in text
    assert "engine.max_num_seqs: 256 <- --max-num-seqs 256" in text
    assert "placeholder" in text
    assert "sk-secret" not in text + json.dumps(launch.to_dict())
    assert scenarios.loads(text) == launch.scenario
    for taken in launch.taken:
        assert taken.field.split(".")[-1] in text


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("vllm serve", ["no model", "vllm serve MODEL"]),
        ("vllm serve --max-num-seqs", ["--max-num-seqs", "value"]),
        ("vllm serve Qwen/Qwen3-8B --max-num-seqs many", ["--max-num-seqs many", "whole number"]),
        ("vllm serve Qwen/Qwen3-8B --max-num-seqs 0", ["--max-num-seqs 0", "greater than or equal to 1"]),
        ("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 90", ["--gpu-memory-utilization 90", "less than or equal to 1"]),
        ("vllm serve Qwen/Qwen3-8B --max-model-len 1000000", ["--max-model-len 1000000", "positions"]),
        ("vllm serve Qwen/Qwen3-8B -tp 3", ["-tp 3", "KV heads"]),
        ("vllm serve Qwen/Qwen3-8B -tp $TP", ["-tp $TP", "variable"]),
        ("vllm serve Qwen/Qwen3-8B -dp 0", ["-dp 0", "replicas"]),
        ("vllm serve Qwen/Qwen3-8B --max-num-seqs 99999999999999999999", ["beyond"]),
        ("vllm serve $MODEL", ["$MODEL", "variable"]),
        ("vllm serve Qwen/Qwen3-8B --speculative-config '{\"k\": 1'", ["--speculative-config", "JSON", "single quotes"]),
        ("vllm serve Qwen/Qwen3-8B --speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 0}'", ["above 0"]),
        ("vllm serve Qwen/Qwen3-8B --block-size 0", ["--block-size 0", "at least 1"]),
        ("vllm serve meta-llama/Llama-3.1-70B", ["Llama-3.1-70B", "--hardware"]),
        ("vllm serve mistralai/Mistral-Small-24B", ["Mistral-Small-24B", "--model-config"]),
        ("vllm serve deepseek-ai/DeepSeek-V3.1 -tp 8", ["DeepSeek-V3.1", "MLA"]),
        ("vllm serve google/gemma-3-27b-it", ["gemma-3", "liding"]),
        ("vllm serve Qwen/Qwen3-Next-80B-A3B-Instruct", ["hybrid"]),
        ("vllm serve Qwen/Qwen3-8B --config nowhere.yaml", ["nowhere.yaml", "no such file"]),
    ],
)  # fmt: skip
def test_a_launch_that_cannot_be_is_refused_by_the_flag_that_says_so(refused, command, named):
    message = refused(command)
    for part in named:
        assert part in message


def test_what_the_engine_itself_would_refuse_is_told(vllm):
    below = vllm("vllm serve Qwen/Qwen3-8B --max-num-batched-tokens 64 --max-num-seqs 256")
    assert any("does not start" in note and "max_num_seqs" in note for note in below.notes)
    whole = vllm("vllm serve Qwen/Qwen3-8B --no-enable-chunked-prefill --max-num-batched-tokens 512 --max-num-seqs 8")
    assert any("does not start" in note and "window" in note for note in whole.notes)


def test_a_device_must_be_named_by_somebody(refused):
    assert "--hardware H100" in refused("vllm serve Qwen/Qwen3-8B", hardware=None)
    assert "did you mean" in refused("vllm serve Qwen/Qwen3-8B", hardware="H10")


def test_an_unusable_model_config_is_refused_by_file(refused, tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert "not valid JSON" in refused("vllm serve M", model_config=str(tmp_path / "config.json"))
    (tmp_path / "config.json").write_text("[]")
    assert "object" in refused("vllm serve M", model_config=str(tmp_path / "config.json"))


def test_a_config_file_stands_below_the_command_line(vllm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("serve.yaml").write_text(
        "model: Qwen/Qwen3-8B\nmax-num-seqs: 8\nmax_num_batched_tokens: 4096\nenable-prefix-caching: false\nenforce-eager: true\n"
    )
    launch = vllm("vllm serve --config serve.yaml --max-num-seqs 16")
    config = launch.scenario.engine_config()
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.enable_prefix_caching) == (16, 4096, False)
    assert [n.flag for n in launch.not_modelled] == ["--enforce-eager"]


def test_every_vllm_preset_can_be_reached(vllm):
    for name in PRESETS:
        if name.startswith("vllm@"):
            assert vllm("vllm serve Qwen/Qwen3-8B", version=name.partition("@")[2]).scenario.engine.preset == name


def test_a_contradiction_says_what_a_short_form_comes_to(vllm):
    log = "INFO 11-03 09:13:23 [kv_cache_utils.py:1091] Maximum concurrency for 16,384 tokens per request: 84.16x"
    (found,) = vllm("vllm serve Qwen/Qwen3-8B --max-model-len 16k", log=log, hardware="H100").contradictions
    assert found.stated == "'--max-model-len 16k', 16000 (command)"
    assert found.against.endswith("84.16x' (log)")
