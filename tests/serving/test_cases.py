"""Cases with known answers, by their numbers: scheduling and KV memory (1 to 6), speculation (7), and what sessions find cached
(14)."""

from __future__ import annotations

import numpy as np
import pytest

from scenarios.workload import Workload
from serving.config import EngineConfig
from serving.request import Status
from sim.cluster import simulate
from tests.laws.alone import alone
from tests.laws.worlds import roofline
from tests.serving.driver import Engine, Step, on


def cached_and_computed(engine: Engine, tokens: int) -> tuple[int, int]:
    """Sends `tokens` of one text, alone, and says what came from the cache and what was computed."""
    request = engine.send((("a", tokens),))
    steps = engine.drain()
    assert all(step.scheduled for step in steps)
    return steps[0].hits[request.index], sum(n for step in steps for _, n in step.scheduled)


# ---------------------------------------------------------------- 1. fully cached prompt


@pytest.mark.parametrize(
    ("tokens", "cached", "computed"), [(16, 0, 16), (17, 16, 1), (63, 48, 15), (64, 48, 16), (65, 64, 1)]
)
@on(block_size=16)
def test_case_1_fully_cached_prompt(engine: Engine, tokens: int, cached: int, computed: int) -> None:
    engine = engine.other()
    assert cached_and_computed(engine, tokens) == (0, tokens)
    assert cached_and_computed(engine, tokens) == (cached, computed)


# ---------------------------------------------------------------- 2. can never fit


@pytest.mark.parametrize(("prompt", "output"), [(112, 1), (97, 16)])
@on(block_size=16, usable=7)
def test_case_2_what_just_fits_runs_and_the_one_behind_it_too(engine: Engine, prompt: int, output: int) -> None:
    engine = engine.other()
    assert engine.config.why_it_can_never_run(prompt, output) is None
    engine.send(prompt, output)
    engine.send(16, 1)
    steps = engine.drain()
    assert sorted(i for step in steps for i in step.finished) == [0, 1]
    assert not any(step.preempted for step in steps)


@pytest.mark.parametrize(("prompt", "output", "blocks"), [(113, 1, 8), (112, 2, 8), (97, 17, 8)])
def test_case_2_what_can_never_fit_is_refused_with_the_reason(prompt: int, output: int, blocks: int) -> None:
    config = EngineConfig(num_gpu_blocks=8, block_size=16)
    reason = config.why_it_can_never_run(prompt, output)
    assert reason == f"{prompt + output - 1} tokens need {blocks} KV blocks of 16, 7 are usable"


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("prompt", "output"), [(113, 1), (112, 2), (97, 17)])
def test_case_2_the_request_queued_behind_a_refused_one_completes(prompt: int, output: int, fast: bool) -> None:
    config = EngineConfig(num_gpu_blocks=8, block_size=16)
    requests = [alone(prompt, output, 0), alone(16, 1, 0)]
    columns = {
        name: np.concatenate([getattr(w, name) for w in requests])
        for name in ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens", "priority", "tenant", "session")
    }
    both = Workload(**columns, follows=np.array([-1, -1]), think_ns=np.array([0, 0]))
    records = simulate(config, both, roofline(), fast=fast)
    assert records.requests["status"].tolist() == [Status.REJECTED, Status.FINISHED]
    assert records.info["rejected"] == [
        {"request": 0, "reason": f"{prompt + output - 1} tokens need 8 KV blocks of 16, 7 are usable"}
    ]


def test_case_2_the_true_answer_length_is_not_consulted() -> None:
    """What the client declared decides, however short the answer will be."""
    config = EngineConfig(num_gpu_blocks=8, block_size=16, max_model_len=2048)
    assert config.why_it_can_never_run(16, 1000) is not None
    assert EngineConfig(num_gpu_blocks=8, block_size=16, max_model_len=112).why_it_can_never_run(16, 1000) is None


def test_case_2_prompt_of_the_whole_window_is_refused() -> None:
    config = EngineConfig(num_gpu_blocks=101, block_size=16, max_model_len=64)
    assert config.why_it_can_never_run(63, 10) is None
    assert config.why_it_can_never_run(64, 1) == "prompt of 64 tokens >= max_model_len 64"


# ---------------------------------------------------------------- 3. when the next block is taken


@pytest.mark.parametrize(("prompt", "after_prefill", "after_decode"), [(17, 0, 0), (16, 3, 0)])
@on(block_size=16, usable=6)
def test_case_3_when_the_next_block_is_taken(
    engine: Engine, prompt: int, after_prefill: int, after_decode: int
) -> None:
    engine = engine.other()
    for _ in range(3):
        engine.send(prompt, 4)
    assert engine.step().free_after == after_prefill
    assert engine.step().free_after == after_decode
    engine.drain()


@on(block_size=16, usable=6)
def test_case_3_one_output_token_never_takes_a_second_block(engine: Engine) -> None:
    engine.send(16, 1)
    (step,) = engine.drain()
    assert step.free == 5


# ---------------------------------------------------------------- 4. eviction order


@on(block_size=16, usable=3)
def test_case_4_the_deepest_block_is_evicted_first(engine: Engine) -> None:
    engine.send((("a", 48),))
    engine.drain()
    engine.send(16)
    engine.drain()
    assert cached_and_computed(engine, 33) == (32, 1)


@on(block_size=16, usable=4)
def test_case_4_without_its_first_block_a_prompt_finds_nothing(engine: Engine) -> None:
    """The first block of a text is the last to go, so when it is gone nothing is left to find."""
    engine.send((("a", 48),))
    engine.drain()
    engine.send(49)  # takes all four
    engine.drain()
    assert cached_and_computed(engine, 33) == (0, 33)


# ---------------------------------------------------------------- 5. hits do not depend on chunking


@pytest.mark.parametrize(
    ("tokens", "budget", "cached", "computed"), [(200, 100, 192, 8), (8192, 1024, 8176, 16)], ids=["200", "8192"]
)
@on(block_size=16, usable=600, max_model_len=9000, max_num_seqs=16)
def test_case_5_hits_do_not_depend_on_chunking(
    engine: Engine, tokens: int, budget: int, cached: int, computed: int
) -> None:
    engine = engine.other(max_num_batched_tokens=budget)
    assert cached_and_computed(engine, tokens) == (0, tokens)
    request = engine.send((("a", tokens),))
    (step,) = engine.drain()
    assert step.hits == {request.index: cached}
    assert step.scheduled == [(request.index, computed)]


# ---------------------------------------------------------------- 6. no livelock


@pytest.mark.parametrize(
    ("budget", "reserve", "steps", "preemptions"),
    [(2048, True, 512, 0), (128, True, 536, 0), (64, True, 568, 0), (64, False, 561, 14)],
)
@on(block_size=16, usable=40)
def test_case_6_no_livelock(engine: Engine, budget: int, reserve: bool, steps: int, preemptions: int) -> None:
    engine = engine.other(max_num_batched_tokens=budget, max_num_seqs=16, scheduler_reserve_full_isl=reserve)
    for _ in range(8):
        engine.send(512, 64)
    run = engine.drain()
    assert len(run) == steps
    assert sum(len(step.preempted) for step in run) == preemptions
    assert sorted(i for step in run for i in step.finished) == list(range(8))


# ---------------------------------------------------------------- 7. speculation at the edges

NGRAM = {"speculation": "ngram", "num_speculative_tokens": 4}


@pytest.mark.parametrize("stand", range(5))
@pytest.mark.parametrize("declared", [50, 5])
@on(block_size=16, max_model_len=100, **NGRAM)
def test_case_7_an_answer_ends_at_exactly_the_window(engine: Engine, declared: int, stand: int) -> None:
    engine = engine.other()
    request = engine.send(95, declared)
    steps = engine.drain(stand=stand)
    assert max(n for step in steps[1:] for _, n in step.scheduled) <= 5
    if engine.name != "oracle":  # which keeps what it knows of a request to itself
        assert request.prompt_tokens + request.num_outputs == 100
    # Four of its answer tokens are computed, and drafts beyond the window never are.
    assert [step.finished for step in steps].count([0]) == 1
    assert len(steps) == {0: 5, 1: 3, 2: 3, 3: 2, 4: 2}[stand]


@on(block_size=16, max_num_batched_tokens=8, max_num_seqs=4, **NGRAM | {"num_speculative_tokens": 3})
def test_case_7_two_rows_with_three_drafts_fill_a_budget_of_eight(engine: Engine) -> None:
    for _ in range(4):
        engine.send(2, 8)
    engine.step()
    for step in engine.drain(stand=1):
        assert [n for _, n in step.scheduled].count(4) == len(step.scheduled) <= 2


@on(block_size=4, usable=10, **NGRAM | {"num_speculative_tokens": 3})
def test_case_7_three_tokens_held_and_four_new_take_one_block(engine: Engine) -> None:
    engine.send(3, 9)
    assert engine.step().free == 9
    step = engine.step()
    assert step.scheduled == [(0, 4)]
    assert step.free == step.free_after == 8  # also when all of its drafts fall


@on(block_size=16, max_num_batched_tokens=8, max_num_seqs=4, **NGRAM | {"num_speculative_tokens": 2})
def test_case_7_the_last_list_of_drafts_is_cut_to_the_budget(engine: Engine) -> None:
    for _ in range(4):
        engine.send(2, 8)
    engine.step()
    for _ in range(3):
        assert engine.step(stand=1).scheduled == [(0, 3), (1, 3), (2, 2)]


# ---------------------------------------------------------------- 14. sessions


@on(block_size=16)
def test_case_14_each_round_of_a_session_finds_the_rounds_before_it(engine: Engine) -> None:
    """100 new tokens and 50 of the answer a round: 149 were written after the first, nine whole blocks."""
    inputs, hits = [], []
    prompt: tuple[tuple[str, int], ...] = ()
    for turn in range(4):
        prompt = (*prompt, (f"user{turn}", 100))
        request = engine.send(prompt, 50)
        steps: list[Step] = engine.drain()
        inputs.append(request.prompt_tokens)
        hits.append(steps[0].hits[request.index])
        prompt = (*prompt, (f"out:{request.index}", 50))
    assert inputs == [100, 250, 400, 550]
    assert hits == [0, 144, 288, 448]
