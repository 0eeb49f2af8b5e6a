"""Small weights and small KV on the CPU engine: what they are, what they cost in accuracy, and that it says what computes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from gpu_backend.cpu import quantized_linear
from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.cpu.kernels import TORCH, best_kernels
from gpu_backend.cpu.quantized_linear import FEW_ROWS, has_kernel, make_quantized_linear
from gpu_backend.quality import KV_ROUNDINGS, WEIGHT_ROUNDINGS, hidden_states
from gpu_backend.quantization import dequantize, quantize
from gpu_backend.tokens import Text
from gpu_backend.weights import random_weights
from scenarios.errors import InputError
from scenarios.models import CATALOG, ModelSpec
from serving.config import EngineConfig
from serving.request import Request
from tests.gpu_backend.shapes import LLAMA, serve

SPEC = ModelSpec(
    "precise-test", 128, 192, 2, 4, 2, 32, 211, qk_norm=True, attention_bias=True, max_position_embeddings=512
)
ROOMY = {"num_gpu_blocks": 65, "block_size": 4, "max_model_len": 128, "max_num_batched_tokens": 100}

# Largest mean distance of logits (whose own mean size is about 0.8) from those of the float engine: a few times what is found.
TOLERANCE = {("int8", "float32"): 0.02, ("int4", "float32"): 0.25, ("float32", "int8"): 0.01, ("float32", "fp8"): 0.05}


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A torch that has no kernels for small weights."""
    has_kernel.cache_clear()
    for name in ("_weight_int8pack_mm", "_convert_weight_to_int4pack_for_cpu"):
        monkeypatch.delattr(torch, name)
    yield
    has_kernel.cache_clear()


def requests() -> list[Request]:
    lengths = [(1, 5), (3, 4), (4, 9), (33, 6), (17, 12), (70, 3)]
    return [Request(i, ((f"p{i}", p),), o, output_key=f"out:{i}") for i, (p, o) in enumerate(lengths)]


def logits(dtype: str, kv_dtype: str, budget: int = 100, **options: object) -> torch.Tensor:
    config = EngineConfig(**{**ROOMY, "max_num_batched_tokens": budget})  # type: ignore[arg-type]
    engine = CpuEngine(SPEC, config, dtype=dtype, kv_dtype=kv_dtype, **options)  # type: ignore[arg-type]
    served = serve(engine, requests())
    return torch.stack([served.logits[key] for key in sorted(served.logits)])


@cache
def expected(dtype: str, kv_dtype: str) -> torch.Tensor:
    """The same by a plain pass over each text with weights and KV rounded beforehand, in float32 throughout."""
    weights, rows = random_weights(SPEC, 0), []
    for request in requests():
        n, output = request.prompt_tokens, request.stops_after(128)
        ids = torch.from_numpy(Text(request, SPEC.vocab_size).first(n + output))
        roundings = [KV_ROUNDINGS.get(kv_dtype)]
        with torch.inference_mode():
            states = hidden_states(SPEC, weights, ids, 128, WEIGHT_ROUNDINGS.get(dtype), roundings)[0]
            rows.append(states[n - 1 : n + output - 1] @ weights.head.t())
    return torch.cat(rows)


@pytest.mark.parametrize(("dtype", "kv_dtype"), TOLERANCE)
def test_rounding_costs_a_little_and_not_nothing(dtype: str, kv_dtype: str) -> None:
    found, plain = logits(dtype, kv_dtype), logits("float32", "float32")
    off = float((found - plain).abs().mean())
    assert 1e-4 < off < TOLERANCE[dtype, kv_dtype] * float(plain.abs().mean())


@pytest.mark.parametrize(("dtype", "kv_dtype"), [*TOLERANCE, ("int8", "int8"), ("int4", "fp8")])
@pytest.mark.parametrize("kernels", [TORCH, best_kernels()], ids=lambda kernels: kernels.name)
def test_what_is_computed_is_the_rounded_model(dtype: str, kv_dtype: str, kernels: object) -> None:
    """Up to bfloat16 activations where torch's kernels for small weights run, which is less than what rounding costs; to a value
    here and there at its other neighbour where KV is rounded."""
    found, rounded = logits(dtype, kv_dtype, kernels=kernels), expected(dtype, kv_dtype)
    room = 0.01 if dtype == "float32" else 0.03
    assert float((found - rounded).abs().mean()) < room * float(rounded.abs().mean())


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8"])
def test_chunking_does_not_see_the_kv_precision(kv_dtype: str) -> None:
    whole, cut = logits("float32", kv_dtype), logits("float32", kv_dtype, budget=9)
    assert float((whole - cut).abs().mean()) < 0.01 * float(whole.abs().mean())


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("rows", [1, 3, FEW_ROWS, FEW_ROWS + 1, 100])
def test_layers_of_any_number_of_rows(bits: int, rows: int) -> None:
    weight, bias, x = torch.randn(48, 192), torch.randn(48), torch.randn(rows, 192)
    wide = dequantize(quantize(weight, bits))
    found = make_quantized_linear(weight, bias, bits, best_kernels())(x)
    expected = torch.nn.functional.linear(x, wide, bias)
    exact = rows > FEW_ROWS or not has_kernel(bits)
    torch.testing.assert_close(found, expected, atol=1e-4 if exact else 0.02 * float(expected.abs().max()), rtol=0.0)


def test_layers_that_share_memory_for_widening_do_not_see_each_other() -> None:
    layers = [(torch.randn(n, 128), make_quantized_linear) for n in (16, 64, 32)]
    made = [(w, make(w, None, 8, best_kernels())) for w, make in layers]
    x = torch.randn(FEW_ROWS + 1, 128)
    found = [linear(x) for _, linear in made]
    for (weight, _), row in zip(made, found, strict=True):
        torch.testing.assert_close(row, x @ dequantize(quantize(weight, 8)).t(), atol=1e-4, rtol=0.0)


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_info_says_what_computes(dtype: str) -> None:
    engine = CpuEngine(SPEC, EngineConfig(**ROOMY), dtype=dtype, kv_dtype="fp8")  # type: ignore[arg-type]
    info = json.loads(json.dumps(engine.info()))
    assert (info["dtype"], info["kv_dtype"]) == (dtype, "fp8")
    assert f"torch's {dtype} kernel" in info["linear"] or "times are those of float32" in info["linear"]
    assert "a byte a value" in info["kv"]
    assert engine.replica().info() == engine.info()
    assert engine.cache.keys.element_size() == 1


def test_without_the_kernels_the_rounded_values_are_computed_in_float32(without_kernels: None) -> None:
    config = EngineConfig(**ROOMY)  # type: ignore[arg-type]
    for dtype in ("int8", "int4"):
        engine = CpuEngine(SPEC, config, dtype=dtype, kv_dtype="float32")
        assert "times are those of float32" in str(engine.info()["linear"])
        assert float((logits(dtype, "float32") - expected(dtype, "float32")).abs().max()) < 1e-3


def test_a_kernel_that_computes_something_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    has_kernel.cache_clear()
    monkeypatch.setattr(torch, "_weight_int8pack_mm", lambda x, w, s: torch.zeros(len(x), len(w)).bfloat16())
    assert not has_kernel(8)
    has_kernel.cache_clear()


def test_inputs_that_no_scale_fits_are_refused() -> None:
    config = EngineConfig(65, block_size=4, max_model_len=64)
    with pytest.raises(InputError, match="48 inputs; int4 needs a multiple of 64"):
        CpuEngine(LLAMA, config, dtype="int4")
    with pytest.raises(InputError, match="'fp8', allowed: auto, float32, bfloat16, int8, int4"):
        CpuEngine(LLAMA, config, dtype="fp8")
    with pytest.raises(InputError, match="'int4', allowed: auto, float32, bfloat16, int8, fp8"):
        CpuEngine(LLAMA, config, kv_dtype="int4")


def test_the_shipped_model_of_a_cpu_has_widths_that_both_precisions_know() -> None:
    tiny = CATALOG["qwen3-tiny"]
    widths = {tiny.hidden_size, tiny.q_size, tiny.intermediate_size}
    for bits in quantized_linear.BITS.values():
        for width in widths:
            assert quantize(torch.randn(16, width), bits).shape == (16, width)
