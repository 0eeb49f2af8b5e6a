"""Speculative decoding on real engines: drafts change when tokens come, never which (law 14)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_backend.cpu.engine import CpuEngine
from gpu_backend.engine import Engine
from gpu_backend.gpu.engine import GpuEngine
from gpu_backend.speculation import leading_matches, prompt_lookup
from scenarios.errors import InputError
from scenarios.models import ModelSpec
from serving.config import EngineConfig
from serving.plan import StepPlan
from serving.request import Request
from serving.scheduler import Scheduler

TARGET = ModelSpec("target", 64, 96, 2, 4, 2, 32, 61, tie_embeddings=True, max_position_embeddings=256)
DRAFT = ModelSpec("draft", 64, 96, 1, 4, 2, 32, 61, tie_embeddings=True, max_position_embeddings=256)
CONFIG = EngineConfig(97, block_size=4, max_model_len=160, max_num_batched_tokens=64, max_num_seqs=8)

Make = Callable[..., Engine]


def cpu(config: EngineConfig, **options: Any) -> CpuEngine:
    return CpuEngine(TARGET, config, dtype="float32", kv_dtype="float32", **options)


def gpu(config: EngineConfig, **options: Any) -> GpuEngine:
    return GpuEngine(TARGET, config, device="cpu", kernels="torch", dtype="float32", **options)


def interpreted(config: EngineConfig, **options: Any) -> GpuEngine:
    return GpuEngine(TARGET, config, device="cpu", kernels="triton", dtype="float32", **options)


def asked(count: int = 4, answer: int = 24) -> list[Request]:
    """Prompts that repeat themselves, as n-grams need it."""
    return [
        Request(i, tuple((f"p{i}", 5 + i) for _ in range(3)), answer + i, output_key=f"out:{i}") for i in range(count)
    ]


def run(engine: Engine, requests: list[Request]) -> tuple[dict[int, list[int]], list[StepPlan], int]:
    """Answers, plans, and how many drafts stood."""
    scheduler, plans, stood = Scheduler(engine.config), [], 0
    said: dict[int, list[int]] = {request.index: [] for request in requests}
    for request in requests:
        scheduler.add(request)
    while scheduler.has_work:
        plan = scheduler.schedule()
        assert plan.scheduled or plan.preempted
        if plan.scheduled:
            engine.submit(plan)
            result = engine.collect()
            for index, tokens in (result.tokens or {}).items():
                said[index].extend(tokens)
            stood += sum((result.accepted or {}).values())
            scheduler.update(plan, result.accepted, result.proposed)
        plans.append(plan)
    lengths = {request.index: request.num_outputs for request in requests}
    return {index: tokens[: lengths[index]] for index, tokens in said.items()}, plans, stood


@pytest.fixture(scope="module")
def plain() -> dict[int, list[int]]:
    return run(cpu(CONFIG, answers="sampled"), asked())[0]


@pytest.mark.parametrize("make", [cpu, gpu, interpreted])
@pytest.mark.parametrize("method", ["ngram", "draft"])
def test_speculation_changes_no_greedy_token(make: Make, method: str, plain: dict[int, list[int]]) -> None:
    config = replace(CONFIG, speculation=method, num_speculative_tokens=3)
    options = {"draft": DRAFT} if method == "draft" else {}
    few = make is interpreted  # which takes milliseconds for every program of a kernel
    said, plans, stood = run(make(config, answers="sampled", **options), asked(2, 8) if few else asked())
    assert said == {index: plain[index][: len(tokens)] for index, tokens in said.items()}
    assert stood > 0 or few, "no draft stood: nothing was tested"
    assert any(row.drafts for plan in plans for row in plan.scheduled)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 12},
        {"num_gpu_blocks": 26, "scheduler_reserve_full_isl": False},
        {"enable_prefix_caching": False},
        {"speculation_off_above": 2},
        {"max_model_len": 40},
    ],
    ids=["small-budget", "preempting", "uncached", "off-above-two", "window-ends"],
)
@pytest.mark.parametrize("method", ["ngram", "draft"])
def test_tokens_are_the_same_under_pressure(method: str, settings: dict[str, Any]) -> None:
    base = replace(CONFIG, **settings)
    without, _, _ = run(cpu(base, answers="sampled"), asked())
    config = replace(base, speculation=method, num_speculative_tokens=4)
    options = {"draft": DRAFT} if method == "draft" else {}
    said, with_drafts, _ = run(cpu(config, answers="sampled", **options), asked())
    assert said == without
    if "num_gpu_blocks" in settings:
        assert any(plan.preempted for plan in with_drafts)


def test_a_draft_model_that_is_the_target_is_always_right() -> None:
    config = replace(CONFIG, speculation="draft", num_speculative_tokens=3)
    _, plans, stood = run(cpu(config, answers="sampled", draft=TARGET), asked(1, 41))
    drafts = sum(row.drafts for plan in plans for row in plan.scheduled)
    assert stood >= drafts - 3, "all of them, but for those behind the end of the answer"
    assert len(plans) == 1 + 10


@pytest.mark.parametrize("make", [cpu, gpu])
def test_forced_acceptance_is_that_which_was_given(make: Make) -> None:
    class Half:
        def accepted(self, request: Request, drafts: int) -> int:
            return min(drafts, (request.index + request.num_outputs) % 4)

        def proposed(self, request: Request, outputs: int) -> int:
            return 3

    config = replace(CONFIG, speculation="ngram", num_speculative_tokens=3)
    requests = asked()
    _, plans, stood = run(make(config, acceptance=Half()), requests)
    assert stood > 0
    assert len(plans) < 26
    for request in requests:
        assert request.num_outputs == 24 + request.index


class Found:
    """Three drafts after every step, of which two stand."""

    def accepted(self, request: Request, drafts: int) -> int:
        return min(drafts, 2)

    def proposed(self, request: Request, outputs: int) -> int:
        return 3


def test_drafts_of_those_who_wait_for_a_step_are_kept() -> None:
    """The budget leaves somebody out while so many others are done that texts are thrown away."""
    config = replace(
        CONFIG,
        num_gpu_blocks=1000,
        max_num_seqs=128,
        max_num_batched_tokens=512,
        speculation="ngram",
        num_speculative_tokens=3,
    )
    engine, scheduler = cpu(config, acceptance=Found()), Scheduler(config)
    many = [Request(i, ((f"p{i}", 3),), 40 if i < 2 else 1, output_key=f"out:{i}") for i in range(100)]
    for request in many:
        scheduler.add(request)
    plan = scheduler.schedule()
    engine.submit(plan)
    result = engine.collect()
    scheduler.update(plan, result.accepted, result.proposed)
    plan = scheduler.schedule()
    assert [row.drafts for row in plan.scheduled] == [3, 3]
    plan.scheduled, left_out = plan.scheduled[:1], plan.scheduled[1]
    engine.submit(plan)
    engine.collect()
    plan.scheduled = [left_out]
    engine.submit(plan)
    assert [len(tokens) for tokens in (engine.collect().tokens or {}).values()] == [3]


def test_those_in_flight_keep_their_text() -> None:
    """Of a hundred, all but one end in the step in flight; the next one is decided, and throws texts away, before."""
    config = replace(CONFIG, num_gpu_blocks=1000, max_num_seqs=128, max_num_batched_tokens=512, async_scheduling=True)
    engine, scheduler = gpu(config), Scheduler(config)
    for i in range(100):
        scheduler.add(Request(i, ((f"p{i}", 3),), 1 if i else 9, output_key=f"out:{i}"))
    first = scheduler.schedule()
    engine.submit(first)
    engine.submit(scheduler.schedule())
    assert len(engine.collect().tokens or {}) == 100


def test_a_temperature_keeps_drafts_and_tokens_consistent() -> None:
    """With a temperature the text differs, but what is said is what is fed: a draft that stands is the token said."""
    config = replace(CONFIG, speculation="ngram", num_speculative_tokens=3)
    engine = gpu(config, answers="sampled", temperature=0.3)
    said, _, stood = run(engine, asked())
    assert stood > 0
    again, _, _ = run(gpu(config, answers="sampled", temperature=0.3), asked())
    assert said == again


def test_prompt_lookup_finds_what_followed_the_longest_suffix() -> None:
    ids = np.array([1, 2, 3, 9, 2, 3, 7, 1, 2, 3])
    assert prompt_lookup(ids, 2).tolist() == [9, 2]  # after 1 2 3, not after the later 2 3
    assert prompt_lookup(ids, 2, longest=2).tolist() == [7, 1]
    assert prompt_lookup(np.arange(9), 3).tolist() == []
    assert prompt_lookup(np.array([5]), 3).tolist() == []
    assert prompt_lookup(np.array([4, 4, 4, 4]), 3, shortest=1).tolist() == [4]


def test_drafts_stand_up_to_the_first_wrong_one() -> None:
    picked = np.array([5, 6, 7, 8])
    assert leading_matches(np.array([5, 6, 7]), picked) == 3
    assert leading_matches(np.array([5, 9, 7]), picked) == 1
    assert leading_matches(np.array([], dtype=np.int64), picked) == 0


def test_what_does_not_go_together_is_refused() -> None:
    ngram = replace(CONFIG, speculation="ngram", num_speculative_tokens=3)
    with pytest.raises(InputError, match="acceptance: with forced answers"):
        cpu(ngram)
    with pytest.raises(InputError, match="simulated only"):
        cpu(replace(ngram, async_scheduling=True), answers="sampled")
    with pytest.raises(InputError, match="draft: a draft model goes with"):
        cpu(replace(CONFIG, speculation="draft", num_speculative_tokens=3), answers="sampled")
    small = replace(DRAFT, vocab_size=60)
    with pytest.raises(InputError, match="vocabulary of 60"):
        cpu(replace(CONFIG, speculation="draft", num_speculative_tokens=3), answers="sampled", draft=small)


def test_what_ended_requests_said_is_forgotten() -> None:
    engine = cpu(replace(CONFIG, speculation="draft", num_speculative_tokens=3), answers="sampled", draft=DRAFT)
    requests = [Request(i, ((f"p{i}", 3),), 2, output_key=f"out:{i}") for i in range(200)]
    said, _, _ = run(engine, requests)
    assert all(len(tokens) == 2 for tokens in said.values())
    assert len(engine._texts) <= 3 * CONFIG.max_num_seqs + 64
    assert engine._drafted.keys() <= engine._texts.keys()
