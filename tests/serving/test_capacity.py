"""Memory policies and waiting prompts: what TensorRT-LLM and SGLang do otherwise than vLLM."""

from __future__ import annotations

from dataclasses import replace

import pytest

from serving.capacity import NewTokenRatio
from serving.config import EngineConfig
from serving.fast_scheduler import FastScheduler
from serving.policies import Order
from tests.serving.driver import Engine, on


@on(usable=8, capacity_scheduler_policy="guaranteed_no_evict")
def test_no_eviction_admits_only_what_fits_with_its_longest_answer(engine: Engine) -> None:
    engine.send(30, 10, max_tokens=35)  # 64 tokens at most: four blocks of 16, two of them now
    engine.send(30, 10, max_tokens=36)  # five of them
    engine.send(5, 3)
    assert engine.step().running == [0]
    steps = engine.drain()
    assert not any(step.preempted for step in steps)
    assert [step.finished for step in steps if step.finished] == [[0], [2], [1]]  # room comes back when the first ends


@on(usable=8, capacity_scheduler_policy="guaranteed_no_evict", max_num_batched_tokens=256)
def test_no_eviction_never_preempts_where_others_must(engine: Engine) -> None:
    for _ in range(6):
        engine.send(30, 40)
    steps = engine.drain()
    assert not any(step.preempted for step in steps)
    assert max(len(step.running) for step in steps) == 1
    other = engine.other(capacity_scheduler_policy="max_utilization")
    for _ in range(6):
        other.send(30, 40)
    assert any(step.preempted for step in other.drain())


def test_without_preemption_only_the_prompt_must_fit_the_budget() -> None:
    config = EngineConfig(200, max_num_batched_tokens=100, enable_chunked_prefill=False)
    assert config.why_it_can_never_run(100, 50) is not None
    trtllm = replace(config, capacity_scheduler_policy="guaranteed_no_evict")
    assert trtllm.why_it_can_never_run(100, 50) is None
    assert trtllm.why_it_can_never_run(101, 50) is not None


def test_where_memory_never_binds_the_policy_is_the_fast_ones_too() -> None:
    config = EngineConfig(641, capacity_scheduler_policy="guaranteed_no_evict", max_model_len=160, max_num_seqs=64)
    assert config.memory_never_binds
    assert FastScheduler.supports(config)
    assert not FastScheduler.supports(replace(config, max_num_seqs=65))
    assert not FastScheduler.supports(replace(config, batch_wait_timeout_iters=2, batch_wait_max_tokens_ratio=0.5))


@on(usable=20, capacity_scheduler_policy="new_token_ratio", batching="prefill_first", max_num_batched_tokens=256)
def test_admission_expects_a_share_of_the_answers_that_run(engine: Engine) -> None:
    engine.send(40, 100)
    engine.step()
    engine.step()
    # 41 of 320 tokens are held, 69 % of 99 more are expected: 13 blocks are left for 100 + 100 tokens, not for 150 + 100.
    engine.send(150, 100)
    assert engine.step().waiting == [1]
    engine.send(100, 100)  # nobody overtakes
    assert engine.step().waiting == [1, 2]


@on(usable=8, capacity_scheduler_policy="new_token_ratio", batching="prefill_first", max_num_batched_tokens=256)
def test_the_shortest_answer_is_retracted_to_the_end_of_the_queue(engine: Engine) -> None:
    ratio = engine.scheduler.capacity
    assert isinstance(ratio, NewTokenRatio)
    ratio.first = ratio.least = ratio.ratio = 0.0  # an estimate that is far too low
    engine.send(20, 60)
    for _ in range(4):
        engine.step()
    engine.send(20, 60)
    engine.send(20, 60)
    preempted = [(step.preempted, step.waiting) for step in engine.drain() if step.preempted]
    assert preempted[0][0] == [1]
    assert preempted[0][1][-1] == 1
    assert ratio.ratio > 0


def test_the_expected_share_shrinks_with_decode_steps_and_is_estimated_anew() -> None:
    policy = NewTokenRatio(EngineConfig(100, schedule_conservativeness=0.5), Order())
    assert policy.ratio == pytest.approx(0.35)
    running = [object()]
    for _ in range(600):
        policy.decided(running, True, 0)  # type: ignore[arg-type]
    assert policy.ratio == pytest.approx(0.35 * 0.14)
    policy.decided(running, False, 0)  # type: ignore[arg-type]
    assert policy.ratio == pytest.approx(0.35 * 0.14)
    policy.decided([], True, 0)
    assert policy.ratio == pytest.approx(0.35)


@on(batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.9, max_num_batched_tokens=100)
def test_prompts_wait_beside_decodes_until_time_is_up(engine: Engine) -> None:
    engine.send(10, 20)
    engine.step()  # nothing decodes: nobody waits
    engine.send(10, 20)
    admitted = [len(engine.step().running) for _ in range(5)]
    assert admitted == [1, 1, 1, 2, 2]


@on(batch_wait_timeout_iters=30, batch_wait_max_tokens_ratio=0.5, max_num_batched_tokens=100)
def test_prompts_wait_beside_decodes_until_there_are_enough_of_them(engine: Engine) -> None:
    engine.send(10, 40)
    engine.step()
    engine.send(24, 5)
    assert engine.step().running == [0]
    engine.send(24, 5)
    assert engine.step().running == [0]  # 49 of 100
    engine.send(1, 5)
    assert engine.step().running == [0, 1, 2, 3]
    engine.send(24, 40)
    steps = engine.drain()
    assert steps[0].running == [0, 1, 2, 3]
    assert 4 in next(step for step in steps if 0 not in step.running).running


@on(batch_wait_timeout_iters=3, batch_wait_max_tokens_ratio=0.9, max_num_batched_tokens=100, max_num_seqs=1)
def test_who_finds_no_seat_does_not_count_as_waiting_for_others(engine: Engine) -> None:
    engine.send(10, 6)
    engine.send(10, 6)
    steps = engine.drain()
    assert [step.finished for step in steps if step.finished] == [[0], [1]]
    assert len(steps) == 12
