from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scenarios import InputError
from scenarios.hf_config import from_config, read_config
from scenarios.models import CATALOG, model

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    ("name", "published", "active"),
    [
        ("Llama-3.1-8B", 8_030_261_248, None),
        ("Llama-3.1-70B", 70_553_706_496, None),
        ("Qwen3-0.6B", 596_049_920, None),
        ("Qwen3-8B", 8_190_735_360, None),
        ("Qwen3-14B", 14_768_307_200, None),
        ("Qwen3-32B", 32_762_123_264, None),
        ("Qwen3-30B-A3B", 30_532_122_624, 3_353_032_704),
        ("SmolLM2-135M", 134_515_008, None),
    ],
)
def test_parameters_are_the_published_totals(name: str, published: int, active: int | None) -> None:
    spec = CATALOG[name]
    assert spec.parameters() == published
    assert spec.active_parameters() == (active or published)


def test_memory_and_attention_of_llama_8b() -> None:
    spec = model("Llama-3.1-8B")
    assert spec.weight_bytes("bfloat16") == 2 * spec.parameters()
    assert spec.kv_bytes_per_token("bfloat16") == 2 * 32 * 8 * 128 * 2  # 128 KiB
    assert spec.kv_bytes_per_token("fp8") == spec.kv_bytes_per_token() / 2
    assert spec.attention_flops(10) == 10 * 4 * 32 * 4096
    # Below two bytes, embeddings and head stay in bfloat16.
    embeddings = 2 * 128256 * 4096
    assert spec.weight_bytes("fp8") == spec.parameters() - embeddings + 2 * embeddings


def test_names_ignore_case_and_organisation() -> None:
    assert model("qwen/QWEN3-8b") is CATALOG["Qwen3-8B"]
    with pytest.raises(InputError, match=r"did you mean 'Qwen3-14B'.*config\.json"):
        model("Qwen3-15B")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("deepseek-ai/DeepSeek-V3", "MLA"), ("google/gemma-3-27b-it", "sliding-window"), ("Qwen3-Next-80B-A3B", "hybrid")],
)
def test_well_known_families_are_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        model(name)


def test_config_of_the_tiny_shape_is_the_catalogs(tmp_path: Path) -> None:
    config = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 512, "intermediate_size": 1536,
        "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True,
        "sliding_window": 4096, "use_sliding_window": False, "_name_or_path": "qwen3-tiny",
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert read_config(file) == read_config(tmp_path) == CATALOG["qwen3-tiny"]


def test_config_defaults_and_rope_forms() -> None:
    spec = from_config(LLAMA, "config.json", "mine")
    assert (spec.num_kv_heads, spec.head_dim, spec.rope_theta, spec.rope_scaling) == (4, 16, 10000.0, None)
    newer = from_config(LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "c", "mine")
    assert newer.rope_theta == 5e5
    assert newer.rope_scaling is None
    scaled = from_config(LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "c", "mine")
    assert scaled.rope_scaling == {"rope_type": "llama3", "factor": 8.0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 512}, "MLA"),
        ({"kv_lora_rank": 256}, "MLA"),
        ({"use_sliding_window": True, "sliding_window": 4096}, "sliding-window"),
        ({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096}, "sliding-window"),
        (
            {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 512},
            "sliding-window",
        ),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}, "state-space"),
        ({"architectures": ["JambaForCausalLM"], "model_type": "jamba"}, "hybrid"),
        ({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"}, "hybrid"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "only full attention"),
        ({"architectures": ["Qwen2MoeForCausalLM"], "shared_expert_intermediate_size": 64}, "shared experts"),
        ({"mlp_only_layers": [0]}, "experts in some layers"),
        ({"vision_config": {}}, "multimodal"),
        ({"quantization_config": {"bits": 4}}, "engine.dtype"),
    ],
)
def test_architectures_beyond_plain_attention_are_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    config = LLAMA | changes
    with pytest.raises(InputError) as caught:
        from_config(config, "config.json", "mine")
    assert reason in str(caught.value)
    assert config["architectures"][0] in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["LamaForCausalLM"], "model_type": "lama"}, "nearest: LlamaForCausalLM"),
        ({"hidden_size": None}, "hidden_size: is required"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers: found 'two'"),
        ({"num_attention_heads": 5, "num_key_value_heads": 3, "head_dim": 8}, "not a multiple"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
)
def test_unusable_config_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        from_config(LLAMA | changes, "config.json", "mine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads: found 0, at least 1"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps: found 'x', but a number"),
        ({"rope_theta": []}, r"rope_theta: found \[\], but a number"),
        ({"rope_parameters": {"rope_theta": "x"}}, "rope_theta: found 'x', but a number"),
        ({"rope_parameters": 3}, "rope_parameters: found 3, but an object"),
        ({"layer_types": 3}, "layer_types: found 3, but a list"),
        ({"architectures": 3}, "architectures: found 3, but a list"),
        ({"decoder_sparse_step": "x"}, "decoder_sparse_step: found 'x', but a whole number"),
    ],
)
def test_a_config_with_a_field_of_another_kind_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_config(LLAMA | changes, "config.json", "mine")


def test_broken_json_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{\n "hidden_size": 5,\n')
    with pytest.raises(InputError, match="line 3"):
        read_config(file)
    file.write_text("[]")
    with pytest.raises(InputError, match="JSON object"):
        read_config(file)
