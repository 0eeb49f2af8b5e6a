"""The GPU engine says the same greedy tokens on every path: torch references or Triton kernels, with graph padding or without,
in chunks, after prefix hits and preemptions (law 14). On a CPU the kernels are interpreted."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.cpu.kernels import TORCH
from gpu_backend.gpu.engine import GpuEngine
from gpu_backend.model_files.hugging_face import to_hugging_face
from gpu_backend.tokens import Text
from gpu_backend.weights import random_weights
from scenarios.errors import InputError
from scenarios.models import CATALOG, ModelSpec
from serving.config import EngineConfig
from serving.plan import StepPlan
from serving.request import Request
from serving.scheduler import Scheduler
from tests.gpu_backend.shapes import LLAMA, LLAMA31, QWEN2, QWEN3, serve

ROOMY = {"num_gpu_blocks": 65, "block_size": 16, "max_model_len": 128, "max_num_batched_tokens": 256, "max_num_seqs": 8}
TINY = ModelSpec(
    "triton-test", 64, 96, 1, 4, 2, 64, 128, qk_norm=True, architecture="Qwen3ForCausalLM", max_position_embeddings=256
)


def gpu_engine(spec: ModelSpec, kernels: str = "torch", **settings: object) -> GpuEngine:
    names = {"graphs", "answers", "kv_dtype", "dtype", "temperature", "dense"}
    options = {name: settings.pop(name) for name in names & set(settings)}
    config = EngineConfig(**{**ROOMY, **settings})  # type: ignore[arg-type]
    options = {"dtype": "float32", **options}
    return GpuEngine(spec, config, device="cpu", kernels=kernels, **options)  # type: ignore[arg-type]


def requests(lengths: list[tuple[int, int]]) -> list[Request]:
    return [Request(i, ((f"p{i}", p),), o, output_key=f"out:{i}") for i, (p, o) in enumerate(lengths)]


LENGTHS = [(1, 5), (3, 4), (4, 9), (33, 6), (17, 12), (70, 3)]
FEW = [(1, 6), (18, 5), (25, 5)]
"""For the interpreter, which takes milliseconds for every program of a kernel."""


def run(engine: GpuEngine | CpuEngine, asked: list[Request]) -> tuple[dict[int, list[int]], list[StepPlan]]:
    """Answers as the model says them (`answers="sampled"`), and the plans."""
    scheduler, plans = Scheduler(engine.config), []
    said: dict[int, list[int]] = {request.index: [] for request in asked}
    for request in asked:
        scheduler.add(request)
    while scheduler.has_work:
        plan = scheduler.schedule()
        engine.submit(plan)
        for index, tokens in (engine.collect().tokens or {}).items():
            said[index] += tokens
        scheduler.update(plan)
        plans.append(plan)
    return said, plans


@pytest.mark.parametrize("spec", [QWEN3, LLAMA, LLAMA31, QWEN2], ids=lambda spec: spec.name)
def test_logits_equal_those_of_the_cpu_engine(spec: ModelSpec) -> None:
    engine = gpu_engine(spec, max_num_batched_tokens=40, block_size=4)
    other = CpuEngine(
        spec, engine.config, dtype="float32", kv_dtype="float32", kernels=TORCH, weights=random_weights(spec, 0)
    )
    ours, theirs = (serve(e, requests(LENGTHS)) for e in (engine, other))
    assert ours.logits.keys() == theirs.logits.keys()
    for key, row in ours.logits.items():
        torch.testing.assert_close(row, theirs.logits[key], atol=1e-4, rtol=0.0)


@pytest.fixture(scope="module")
def said_plainly() -> dict[int, list[int]]:
    return run(gpu_engine(TINY, answers="sampled", graphs=False), requests(FEW))[0]


@pytest.mark.parametrize("kernels", ["torch", "triton"])
@pytest.mark.parametrize(
    "settings",
    [
        {"graphs": False},
        {"graphs": True, "max_num_batched_tokens": 16, "block_size": 8},
        {"graphs": True, "num_gpu_blocks": 14, "block_size": 4, "max_model_len": 48},
        {"graphs": False, "dense": "triton"},
    ],
    ids=["plain", "padded-chunked", "preempting", "own-linear"],
)
def test_greedy_tokens_are_the_same_on_every_path(
    said_plainly: dict[int, list[int]], kernels: str, settings: dict[str, object]
) -> None:
    engine = gpu_engine(TINY, kernels, answers="sampled", **settings)
    said, plans = run(engine, requests(FEW))
    assert said == said_plainly
    if "num_gpu_blocks" in settings:
        assert any(plan.preempted for plan in plans), "nothing was preempted: the case is not what it claims"


@pytest.mark.parametrize("graphs", [False, True])
def test_a_step_that_starts_before_its_tokens_are_known_says_the_same(
    said_plainly: dict[int, list[int]], graphs: bool
) -> None:
    """Asynchronous scheduling: two plans in flight; the second finds the first one's tokens on the device."""
    engine = gpu_engine(TINY, answers="sampled", graphs=graphs, async_scheduling=True, max_num_batched_tokens=24)
    scheduler, asked = Scheduler(engine.config), requests(FEW)
    said: dict[int, list[int]] = {request.index: [] for request in asked}
    for request in asked:
        scheduler.add(request)
    flying: list[StepPlan] = []
    overlapped = 0
    while scheduler.has_work or flying:
        plan = scheduler.schedule() if scheduler.has_work else None
        if plan is not None and plan.scheduled:
            engine.submit(plan)
            flying.append(plan)
        overlapped += len(flying) == 2
        if len(flying) == 2 or plan is None or not plan.scheduled:
            done = flying.pop(0)
            for index, tokens in (engine.collect().tokens or {}).items():
                said[index] += tokens
            scheduler.update(done)
    assert overlapped > 3
    assert {i: said[i][: len(tokens)] for i, tokens in said_plainly.items()} == said_plainly


@pytest.mark.parametrize("kernels", ["torch", "triton"])
def test_a_prefix_hit_changes_no_token(kernels: str) -> None:
    asked, again = (
        [Request(i, (("system", 18), (f"p{i}", 5)), 2, output_key=f"out:{i}") for i in range(2)] for _ in range(2)
    )
    cold, _ = run(gpu_engine(TINY, kernels, answers="sampled", enable_prefix_caching=False), asked)
    warm, plans = run(gpu_engine(TINY, kernels, answers="sampled"), again)
    assert warm == cold
    assert sum(admission.hit_tokens for plan in plans for admission in plan.admitted) == 16


def test_decodes_of_equal_length_run_in_a_bucket() -> None:
    engine = gpu_engine(TINY, max_num_seqs=7)
    assert engine.runner.graphs.sizes == [1, 2, 4, 7]
    plan_of = [Request(i, ((f"p{i}", 4),), 3) for i in range(3)]
    scheduler = Scheduler(engine.config)
    for request in plan_of:
        scheduler.add(request)
    first = scheduler.schedule()
    assert engine.runner.run(first.scheduled, _texts(engine, first)).bucket is None
    scheduler.update(first)
    second = scheduler.schedule()
    filled = engine.runner.run(second.scheduled, _texts(engine, second))
    assert filled.bucket is not None
    assert (filled.bucket.sequences, filled.bucket.queries) == (4, 1)


def _texts(engine: GpuEngine, plan: StepPlan) -> dict:
    engine._take_texts(plan)
    return engine._texts


def test_padding_writes_nowhere() -> None:
    engine = gpu_engine(TINY)
    before = [part.clone() for part in (engine.cache.keys, engine.cache.values)]
    asked = requests([(5, 4), (9, 4), (3, 4)])
    _, plans = run(engine, asked)
    assert any(plan.shape.decode_sequences == 3 for plan in plans)
    for part, was in zip((engine.cache.keys, engine.cache.values), before, strict=True):
        changed = (part != was).flatten(2).any(-1).any(0)
        assert int(changed.sum()) == 3, "each of these requests fills one block"
        assert not changed[0]


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8", "bfloat16"])
def test_a_small_cache_stays_close(kv_dtype: str) -> None:
    exact, small = (serve(gpu_engine(TINY, kv_dtype=kind), requests(LENGTHS)) for kind in ("float32", kv_dtype))
    error = torch.stack([small.logits[key] - row for key, row in exact.logits.items()])
    spread = torch.stack(list(exact.logits.values())).std()
    assert 0 < error.std() < {"int8": 0.02, "fp8": 0.1, "bfloat16": 0.02}[kv_dtype] * spread


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_quantised_weights_stay_close(dtype: str) -> None:
    wide = ModelSpec("wide", 128, 256, 1, 4, 2, 32, 64, max_position_embeddings=256)
    exact, small = (serve(gpu_engine(wide, dtype=kind), requests(LENGTHS)) for kind in ("float32", dtype))
    error = torch.stack([small.logits[key] - row for key, row in exact.logits.items()])
    spread = torch.stack(list(exact.logits.values())).std()
    assert 0 < error.std() < {"int8": 0.03, "int4": 0.4}[dtype] * spread


def test_weights_that_cannot_be_quantised_are_named() -> None:
    narrow = ModelSpec("narrow", 48, 80, 1, 6, 2, 32, 64, max_position_embeddings=256)
    with pytest.raises(InputError, match=r"layer 0: .* 48"):
        gpu_engine(narrow, dtype="int4")


def test_experts_equal_transformers() -> None:
    spec = ModelSpec(
        "experts", 64, 64, 2, 4, 2, 32, 64, qk_norm=True, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=48,
        architecture="Qwen3MoeForCausalLM", max_position_embeddings=256,
    )  # fmt: skip
    config = transformers.Qwen3MoeConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, moe_intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True,
        decoder_sparse_step=1, rms_norm_eps=spec.rms_norm_eps, max_position_embeddings=256, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope_theta},
    )  # fmt: skip
    model = transformers.Qwen3MoeForCausalLM(config).eval()
    model.load_state_dict(to_hugging_face(spec, random_weights(spec, 0)))
    asked = requests(LENGTHS)
    served = serve(gpu_engine(spec, block_size=4, max_num_batched_tokens=40), asked)
    for request in asked:
        n = request.num_outputs
        ids = torch.from_numpy(Text(request, spec.vocab_size).first(request.prompt_tokens + n))
        with torch.inference_mode():
            expected = model(ids[None]).logits[0, request.prompt_tokens - 1 : -1]
        found = torch.stack([served.logits[request.index, k] for k in range(n)])
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0.0)


def test_info_is_json_and_says_what_ran() -> None:
    info = json.loads(json.dumps(gpu_engine(TINY).info()))
    assert (info["device"], info["kernels"], info["model"]) == ("cpu", "torch", TINY.name)


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(InputError, match=r"141\.\d GB of weights, .* GB of KV .* exceed"):
        GpuEngine(CATALOG["Llama-3.1-70B"], EngineConfig(129), device="cpu", dtype="bfloat16")


def test_unknown_names_are_refused() -> None:
    for name in ("dtype", "kv_dtype", "kernels", "dense", "clock", "answers"):
        with pytest.raises(InputError, match=f"{name}: found 'moon', allowed: "):
            GpuEngine(TINY, EngineConfig(65), device="cpu", **{name: "moon"})  # type: ignore[arg-type]
