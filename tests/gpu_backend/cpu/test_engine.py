"""The engine as an executor: what it computes, how it counts time, what it refuses."""

from __future__ import annotations

import json
import time

import pytest
import torch

from gpu_backend import make_engine
from gpu_backend.cpu import batch as batch_module
from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.cpu.kernels import TORCH, best_kernels
from gpu_backend.cpu.linear import PACKED, _packed, choose_dtype, make_linear, padded_rows, row_counts
from gpu_backend.scratch import spread_contexts
from scenarios.errors import InputError
from scenarios.models import CATALOG
from serving.config import EngineConfig
from serving.plan import StepPlan, StepShape
from serving.request import Request
from serving.scheduler import Scheduler
from tests.gpu_backend.shapes import LLAMA, QWEN3, serve

CONFIG = EngineConfig(65, block_size=4, max_model_len=128, max_num_batched_tokens=64, max_num_seqs=8)


@pytest.fixture(scope="module")
def engine() -> CpuEngine:
    return CpuEngine(QWEN3, CONFIG, dtype="float32", kv_dtype="float32")


def first_plan(requests: list[Request]) -> StepPlan:
    scheduler = Scheduler(CONFIG)
    for request in requests:
        scheduler.add(request)
    return scheduler.schedule()


def test_a_step_samples_what_its_logits_say_and_takes_time(engine: CpuEngine) -> None:
    requests = [Request(i, ((f"p{i}", 9),), 3, output_key=f"out:{i}") for i in range(3)]
    plan = first_plan(requests)
    engine.submit(plan)
    result = engine.collect()
    assert result.duration_ns > 0
    assert result.tokens == {i: [int(row.argmax())] for i, row in engine.logits(plan).items()}
    assert sorted(result.tokens) == [0, 1, 2]


def test_a_partial_chunk_samples_nothing(engine: CpuEngine) -> None:
    engine.submit(first_plan([Request(0, (("p", 100),), 3)]))
    assert engine.collect().tokens == {}


def test_one_plan_is_in_flight_at_most(engine: CpuEngine) -> None:
    plan = first_plan([Request(0, (("p", 5),), 3)])
    with pytest.raises(RuntimeError, match="submit one first"):
        engine.collect()
    engine.submit(plan)
    with pytest.raises(RuntimeError, match="collect it first"):
        engine.submit(plan)
    engine.collect()


def test_what_the_model_samples_is_never_fed_back(engine: CpuEngine) -> None:
    """Answers are forced: a request whose text is another one's prompt and answer goes through the same logits."""
    answered = [Request(0, (("p", 9),), 8, output_key="out:0")]
    quoted = [Request(1, (("p", 9), ("out:0", 7)), 1, output_key="out:1")]
    a, b = serve(engine, answered), serve(engine, quoted)
    torch.testing.assert_close(a.logits[0, 7], b.logits[1, 0], atol=1e-4, rtol=0)


def test_text_of_those_who_left_is_forgotten(engine: CpuEngine) -> None:
    requests = [Request(i, ((f"p{i}", 3),), 1, output_key=f"out:{i}") for i in range(300)]
    serve(engine, requests)
    assert len(engine._texts) <= 3 * CONFIG.max_num_seqs + 64


def test_another_request_of_the_same_number_gets_its_own_text(engine: CpuEngine) -> None:
    logits = [serve(engine, [Request(0, ((key, 9),), 1)]).logits[0, 0] for key in ("a", "b", "a")]
    assert torch.equal(logits[0], logits[2])
    assert not torch.equal(logits[0], logits[1])


def test_a_replica_shares_weights_and_has_its_own_memory(engine: CpuEngine) -> None:
    other = engine.replica()
    assert other.model is engine.model
    assert other.info() == engine.info()
    assert other.cache.keys.data_ptr() != engine.cache.keys.data_ptr()
    a, b = (serve(e, [Request(0, (("p", 20),), 4)]) for e in (engine, other))
    assert all(torch.equal(a.logits[key], b.logits[key]) for key in a.logits)


def test_info_is_json_and_says_what_ran(engine: CpuEngine) -> None:
    info = json.loads(json.dumps(engine.info()))
    assert info["device"] == "cpu"
    assert info["model"] == QWEN3.name
    assert info["kv_dtype"] == "float32"
    assert info["threads"] == 1


# --- measuring ---


@pytest.mark.parametrize(
    "shape",
    [
        StepShape((), 1, 0, 0, 1),
        StepShape((), 5, 100, 40, 5),
        StepShape(((20, 0),), 0, 0, 0, 1),
        StepShape(((20, 0), (1, 7), (5, 100)), 3, 300, 100, 4),
    ],
)
def test_measured_steps_have_the_shape_that_was_asked_for(
    engine: CpuEngine, shape: StepShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    prepare = batch_module.prepare
    monkeypatch.setattr("gpu_backend.cpu.engine.prepare", lambda *a: seen.append(prepare(*a)) or seen[-1])
    assert engine.measure(shape, repeats=2) > 0
    assert len(seen) == 2
    batch = seen[0]
    assert len(batch.token_ids) == shape.tokens
    assert len(batch.sampled) == shape.sampled
    singles = sum(q == 1 for q, _ in shape.prefill)
    assert sorted((c.tokens, c.context) for c in batch.chunks) == sorted(p for p in shape.prefill if p[0] > 1)
    contexts = batch.lengths[: shape.decode_sequences] - 1
    assert batch.decodes == shape.decode_sequences + singles
    assert (contexts.sum(), contexts.max(initial=0)) == (shape.decode_context, shape.decode_max_context)


def test_scratch_blocks_are_reused_when_the_pool_is_too_small(engine: CpuEngine) -> None:
    assert engine.measure(StepShape((), 8, 8 * 127, 127, 8)) > 0  # 256 blocks of the 64 that exist


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (StepShape(), "no tokens"),
        (StepShape((), 0, 5, 5, 0), "no decodes"),
        (StepShape((), 2, 50, 20, 2), "cannot sum to 50"),
        (StepShape((), 2, 10, 20, 2), "cannot sum to 10"),
        (StepShape(((128, 1),), 0, 0, 0, 1), "window of 128"),
        (StepShape(((0, 1),), 0, 0, 0, 1), "window of 128"),
        (StepShape(((5, 0),), 0, 0, 0, 2), "2 rows sample"),
        (StepShape((), 2, 10, 5, 1), "1 rows sample"),
    ],
)
def test_impossible_shapes_are_refused(engine: CpuEngine, shape: StepShape, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.measure(shape)


def test_contexts_are_spread_evenly_below_the_longest() -> None:
    assert spread_contexts(StepShape((), 4, 103, 40, 4)) == [40, 21, 21, 21]
    assert spread_contexts(StepShape((), 4, 105, 40, 4)) == [40, 22, 22, 21]
    assert spread_contexts(StepShape((), 3, 30, 10, 3)) == [10, 10, 10]
    assert spread_contexts(StepShape((), 1, 7, 7, 1)) == [7]


def test_the_cpu_clock_counts_work_and_not_waiting(engine: CpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = engine.model.forward

    def slow(*args: object) -> torch.Tensor:
        time.sleep(0.05)
        return forward(*args)

    monkeypatch.setattr(engine.model, "forward", slow)
    shape = StepShape(((20, 0),), 0, 0, 0, 1)
    assert engine.measure(shape) < 50e6
    monkeypatch.setattr(engine, "clock", "wall")
    assert engine.measure(shape) > 50e6


# --- dense layers ---


def test_row_counts_are_few_and_all_known_beforehand() -> None:
    counts = row_counts(10**6)
    assert len(counts) < 60
    for n in range(1, 1500):
        assert n <= padded_rows(n) < n * 1.2 + 1
        assert padded_rows(n) % 256 in (0, *counts)


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 65])
@pytest.mark.parametrize("outputs", [1, 3, 48, 50])
def test_dense_layers_of_any_shape(rows: int, outputs: int) -> None:
    weight, bias, x = torch.randn(outputs, 33), torch.randn(outputs), torch.randn(rows, 33)
    for b in (None, bias):
        layer, _ = make_linear(weight, b, torch.float32, best_kernels())
        torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, weight, b), atol=1e-5, rtol=1e-5)
    layer, _ = make_linear(weight, bias, torch.bfloat16, best_kernels())
    torch.testing.assert_close(layer(x), x @ weight.t() + bias, atol=0.2, rtol=0.05)


def test_packed_layers_agree_where_the_cpu_can_pack() -> None:
    weight, bias, x = torch.randn(48, 32), torch.randn(48), torch.randn(5, 32)
    packed = _packed(weight, bias)
    if packed is None:
        pytest.skip("this torch cannot pack weights on this CPU")
    torch.testing.assert_close(packed(x), torch.nn.functional.linear(x, weight, bias), atol=1e-5, rtol=1e-5)


def test_a_model_of_packed_layers_is_padded_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = CpuEngine(QWEN3, CONFIG, kv_dtype="float32", dtype="float32", kernels=TORCH)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    packed = CpuEngine(QWEN3, CONFIG, kv_dtype="float32", dtype="float32", kernels=TORCH)
    if packed.model.linear_kind != PACKED:
        pytest.skip("this torch cannot pack weights on this CPU")
    lengths = [20, 3, 3, 2, 1] * 4
    a, b = ([serve(e, [Request(i, ((f"p{i}", n),), 3) for i, n in enumerate(lengths)])] for e in (plain, packed))
    for key, row in a[0].logits.items():
        torch.testing.assert_close(row, b[0].logits[key], atol=1e-4, rtol=0)


def test_without_packing_the_plain_layer_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_backend.cpu.linear._packed", lambda *a: None)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    _, kind = make_linear(torch.randn(48, 32), None, torch.float32, TORCH)
    assert kind == "torch"
    assert choose_dtype("auto") == torch.float32


# --- what is refused ---


def test_cuda_is_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"--device: found cuda, but torch .* sees no CUDA device here. Allowed: cpu"):
        make_engine("cuda", LLAMA, CONFIG)


def test_unknown_devices_precisions_and_clocks_are_refused() -> None:
    with pytest.raises(InputError, match="found tpu"):
        make_engine("tpu", LLAMA, CONFIG)
    with pytest.raises(InputError, match="found 'int3', allowed: auto"):
        make_engine("cpu", LLAMA, CONFIG, dtype="int3")
    with pytest.raises(InputError, match="found 'moon'"):
        make_engine("cpu", LLAMA, CONFIG, clock="moon")
    with pytest.raises(InputError, match="threads: found 2"):
        make_engine("cpu", LLAMA, CONFIG, threads=2)


def test_a_model_that_cannot_fit_is_refused_before_it_is_built() -> None:
    with pytest.raises(InputError, match="GB of weights"):
        make_engine("cpu", CATALOG["Llama-3.1-70B"], CONFIG)
    with pytest.raises(InputError, match="GB of KV"):
        make_engine("cpu", LLAMA, EngineConfig(10**9))


def test_a_measured_verification_has_its_drafts(engine: CpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    prepare = batch_module.prepare
    monkeypatch.setattr("gpu_backend.cpu.engine.prepare", lambda *a: seen.append(prepare(*a)) or seen[-1])
    shape = StepShape(((4, 20), (4, 9), (6, 0)), 2, 10, 5, 2 + 4 + 4 + 1, draft_tokens=6)
    assert engine.measure(shape) > 0
    assert len(seen[0].sampled) == shape.sampled
    assert [row.drafts for row, _ in seen[0].samplers] == [0, 0, 3, 3, 0]
    with pytest.raises(InputError, match="5 of them drafts"):
        engine.measure(shape._replace(draft_tokens=5))
