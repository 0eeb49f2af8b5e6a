"""The decoder against Hugging Face's on the same weights, whatever way a request takes through the scheduler (law 14)."""

from __future__ import annotations

import pytest
import torch
import transformers

from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.cpu.kernels import TORCH
from gpu_backend.model_files.hugging_face import from_hugging_face, to_hugging_face
from gpu_backend.tokens import Text
from gpu_backend.weights import check_supported, random_weights
from scenarios.errors import InputError
from scenarios.models import CATALOG, ModelSpec
from serving.config import EngineConfig
from serving.request import Request
from tests.gpu_backend.shapes import LLAMA, LLAMA31, QWEN2, QWEN3, Served, serve

SPECS = (QWEN3, LLAMA, LLAMA31, QWEN2)
TOLERANCE = {"atol": 1e-4, "rtol": 0.0}
ROOMY = {"num_gpu_blocks": 65, "block_size": 4, "max_model_len": 128, "max_num_batched_tokens": 512}


def reference(spec: ModelSpec) -> torch.nn.Module:
    """Hugging Face's model of that spec with weights of its own."""
    kind = {"Qwen3ForCausalLM": "Qwen3", "Qwen2ForCausalLM": "Qwen2", "LlamaForCausalLM": "Llama"}[spec.architecture]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=spec.rms_norm_eps,
        tie_word_embeddings=spec.tie_embeddings,
        max_position_embeddings=spec.max_position_embeddings,
        rope_parameters={"rope_type": "default", **(spec.rope_scaling or {}), "rope_theta": spec.rope_theta},
        attention_bias=False,
    )
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    model.load_state_dict(to_hugging_face(spec, random_weights(spec, seed=3)))
    return model


@pytest.fixture(scope="module")
def references() -> dict[str, torch.nn.Module]:
    return {spec.name: reference(spec) for spec in SPECS}


def engine(spec: ModelSpec, model: torch.nn.Module, **settings: object) -> CpuEngine:
    config = EngineConfig(**{**ROOMY, **settings})  # type: ignore[arg-type]
    weights = from_hugging_face(spec, model.state_dict())
    return CpuEngine(spec, config, dtype="float32", kv_dtype="float32", weights=weights)


def check(spec: ModelSpec, model: torch.nn.Module, requests: list[Request], served: Served) -> None:
    """Every answer token's logits equal those of one dense pass over the whole text."""
    for request in requests:
        n = request.num_outputs
        ids = torch.from_numpy(Text(request, spec.vocab_size).first(request.prompt_tokens + n))
        with torch.inference_mode():
            expected = model(ids[None]).logits[0, request.prompt_tokens - 1 : -1]
        found = torch.stack([served.logits[request.index, k] for k in range(n)])
        assert found.abs().max() > 0.5, "logits so small that any would agree"
        torch.testing.assert_close(found, expected, **TOLERANCE)


def batch_of_requests() -> list[Request]:
    lengths = [(1, 5), (3, 4), (4, 9), (33, 6), (17, 12), (70, 3)]
    return [Request(i, ((f"p{i}", p),), o, output_key=f"out:{i}") for i, (p, o) in enumerate(lengths)]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_logits_equal_transformers_in_mixed_batches(spec: ModelSpec, references: dict[str, torch.nn.Module]) -> None:
    requests, model = batch_of_requests(), references[spec.name]
    served = serve(engine(spec, model, max_num_batched_tokens=40), requests)
    assert any(plan.shape.prefill and plan.shape.decode_sequences for plan in served.plans)
    check(spec, model, requests, served)


@pytest.mark.parametrize("budget", [1, 2, 7, 16, 512])
def test_chunking_a_prompt_changes_no_logits(budget: int, references: dict[str, torch.nn.Module]) -> None:
    requests, model = batch_of_requests(), references[QWEN3.name]
    check(QWEN3, model, requests, serve(engine(QWEN3, model, max_num_batched_tokens=budget), requests))


@pytest.mark.parametrize("block_size", [1, 3, 16, 64])
def test_block_size_changes_no_logits(block_size: int, references: dict[str, torch.nn.Module]) -> None:
    requests, model = batch_of_requests(), references[LLAMA.name]
    blocks = 1 + 256 // block_size + len(requests)
    served = serve(
        engine(LLAMA, model, block_size=block_size, num_gpu_blocks=blocks, max_num_batched_tokens=50), requests
    )
    check(LLAMA, model, requests, served)


@pytest.mark.parametrize("caching", [True, False])
def test_preempted_requests_recompute_to_the_same_logits(caching: bool, references: dict[str, torch.nn.Module]) -> None:
    requests = [Request(i, ((f"p{i}", 15),), 25, output_key=f"out:{i}") for i in range(3)]
    model = references[QWEN3.name]
    tight = engine(QWEN3, model, num_gpu_blocks=22, max_num_batched_tokens=20, enable_prefix_caching=caching)
    served = serve(tight, requests)
    assert sum(request.preemptions for request in requests) > 0
    check(QWEN3, model, requests, served)


def test_prefix_hits_change_no_logits(references: dict[str, torch.nn.Module]) -> None:
    model = references[QWEN3.name]
    requests = [
        Request(0, (("system", 30), ("a", 5)), 9, output_key="out:0"),
        Request(1, (("system", 30), ("b", 12)), 5, output_key="out:1"),
        Request(2, (("system", 30), ("a", 5), ("out:0", 9), ("c", 3)), 6, output_key="out:2"),  # the next turn
        Request(3, (("system", 30), ("a", 5)), 2, output_key="out:0"),  # fully cached
    ]
    served = serve(engine(QWEN3, model), requests, one_by_one=True)
    assert [request.cached_tokens for request in requests] == [0, 28, 40, 32]
    check(QWEN3, model, requests, served)


def test_requests_of_one_step_share_blocks_that_it_computes(references: dict[str, torch.nn.Module]) -> None:
    model = references[LLAMA.name]
    requests = [Request(i, (("system", 40), (f"u{i}", 6)), 4, output_key=f"out:{i}") for i in range(3)]
    served = serve(engine(LLAMA, model), requests)
    assert [request.cached_tokens for request in requests] == [0, 40, 40]
    assert len(served.plans[0].scheduled) == 3
    check(LLAMA, model, requests, served)


def test_case_16_garbage_in_unused_blocks_reaches_no_logits(references: dict[str, torch.nn.Module]) -> None:
    model = references[QWEN3.name]
    poisoned = engine(QWEN3, model, block_size=16, num_gpu_blocks=40, max_num_batched_tokens=33)
    garbage = torch.tensor([float("nan"), 1e4, float("inf")])
    for part in (poisoned.cache.keys, poisoned.cache.values):
        part.copy_(garbage[torch.arange(part.numel()) % 3].view_as(part))
    requests = [Request(i, ((f"p{i}", p),), 3, output_key=f"out:{i}") for i, p in enumerate((1, 15, 16, 17, 64))]
    check(QWEN3, model, requests, serve(poisoned, requests))


def test_plain_torch_kernels_give_the_same_logits(references: dict[str, torch.nn.Module]) -> None:
    requests, model = batch_of_requests(), references[QWEN3.name]
    config = EngineConfig(**{**ROOMY, "max_num_batched_tokens": 40})
    weights = from_hugging_face(QWEN3, model.state_dict())
    plain = CpuEngine(QWEN3, config, dtype="float32", kv_dtype="float32", weights=weights, kernels=TORCH)
    assert plain.info()["kernels"] == "torch"
    check(QWEN3, model, requests, serve(plain, requests))


def test_long_chunks_are_cut_into_tiles_without_a_trace(references: dict[str, torch.nn.Module]) -> None:
    model = references[LLAMA.name]
    requests = [Request(0, (("long", 601),), 2, output_key="a"), Request(1, (("next", 150),), 2, output_key="b")]
    served = serve(engine(LLAMA, model, num_gpu_blocks=300, max_model_len=700, max_num_batched_tokens=530), requests)
    check(LLAMA, model, requests, served)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reduced_precision_stays_close_and_does_not_see_chunking(
    dtype: str, references: dict[str, torch.nn.Module]
) -> None:
    model, found = references[QWEN3.name], []
    for budget in (512, 9):
        requests = batch_of_requests()
        config = EngineConfig(**{**ROOMY, "max_num_batched_tokens": budget})
        weights = from_hugging_face(QWEN3, model.state_dict())
        served = serve(CpuEngine(QWEN3, config, dtype=dtype, kv_dtype="bfloat16", weights=weights), requests)
        found.append(torch.stack([served.logits[key] for key in sorted(served.logits)]))
    ids = torch.from_numpy(Text(requests[-1], QWEN3.vocab_size).first(72))
    with torch.inference_mode():
        expected = model(ids[None]).logits[0, 69:72]
    assert (found[0][-3:] - expected).abs().mean() < 0.03
    assert (found[0] - found[1]).abs().mean() < (0.01 if dtype == "float32" else 0.03)


def test_weights_survive_the_way_to_hugging_face_and_back() -> None:
    mine = random_weights(QWEN2, seed=5)
    back = from_hugging_face(QWEN2, to_hugging_face(QWEN2, mine))
    for a, b in zip(mine.layers, back.layers, strict=True):
        assert all(torch.equal(x, getattr(b, name)) for name, x in vars(a).items() if x is not None)
    assert torch.equal(mine.head, back.head)
    assert sum(x.numel() for x in to_hugging_face(QWEN2, mine).values()) == QWEN2.parameters()


def test_equal_seeds_draw_equal_weights() -> None:
    a, b, c = (random_weights(LLAMA, seed) for seed in (1, 1, 2))
    assert torch.equal(a.layers[1].down, b.layers[1].down)
    assert not torch.equal(a.layers[1].down, c.layers[1].down)


def test_models_that_would_be_computed_wrongly_are_refused() -> None:
    with pytest.raises(InputError, match="128 experts"):
        check_supported(CATALOG["Qwen3-30B-A3B"])
    yarn = ModelSpec("yarn", 48, 80, 2, 4, 4, 12, 97, rope_scaling={"rope_type": "yarn", "factor": 2.0})
    with pytest.raises(InputError, match="'yarn'"):
        check_supported(yarn)
