"""Speculation, rule by rule: what drafts take, what is given back, and who gets dummies."""

from __future__ import annotations

import pytest

from serving.config import EngineConfig
from serving.plan import StepShape
from tests.serving.driver import Engine, on

NGRAM = {"speculation": "ngram", "num_speculative_tokens": 3}
DRAFT = {"speculation": "draft", "num_speculative_tokens": 3}


@on(block_size=16, **NGRAM)
def test_a_prompt_has_no_drafts_and_the_step_behind_it_has(engine: Engine) -> None:
    engine.send(20, 9)
    assert engine.step().scheduled == [(0, 20)]
    assert engine.step().scheduled == [(0, 4)]


@on(block_size=16, max_num_batched_tokens=8, **NGRAM)
def test_a_prompt_that_is_still_prefilling_has_none(engine: Engine) -> None:
    engine.send(20, 9)
    assert [engine.step().scheduled for _ in range(4)] == [[(0, 8)], [(0, 8)], [(0, 4)], [(0, 4)]]


@pytest.mark.parametrize(("stand", "steps"), [(0, 9), (1, 5), (2, 4), (3, 3)])
@on(block_size=16, **NGRAM)
def test_a_step_yields_what_stands_and_one_token_more(engine: Engine, stand: int, steps: int) -> None:
    engine = engine.other()
    engine.send(20, 9)
    assert len(engine.drain(stand=stand)) == steps


@on(block_size=16, **NGRAM)
def test_fewer_drafts_are_verified_where_fewer_are_found(engine: Engine) -> None:
    engine.send(20, 9)
    engine.step(found=2)
    assert engine.step(stand=2, found=0).scheduled == [(0, 3)]
    assert engine.step(found=0).scheduled == [(0, 1)]


@on(block_size=16, **NGRAM)
def test_a_row_that_verifies_counts_as_a_chunk_and_samples_for_every_draft(engine: Engine) -> None:
    engine.send(20, 9)
    engine.step()
    plan = engine.schedule()
    (row,) = plan.scheduled
    assert (row.tokens, row.context, row.samples, row.drafts, row.padded) == (4, 20, True, 3, False)
    assert plan.shape == StepShape(((4, 20),), 0, 0, 0, sampled=4, draft_tokens=3)


@on(block_size=16, max_num_batched_tokens=256, long_prefill_token_threshold=2, **NGRAM)
def test_the_threshold_cuts_drafts_and_those_cut_are_lost(engine: Engine) -> None:
    engine.send(2, 9)
    engine.send(2, 9)
    engine.step()
    assert engine.step().scheduled == [(0, 2), (1, 2)]
    assert engine.step(found=0).scheduled == [(0, 2), (1, 2)]
    assert engine.step().scheduled == [(0, 1), (1, 1)]


@on(block_size=16, max_num_batched_tokens=8, max_num_seqs=3, **NGRAM)
def test_a_request_that_is_not_scheduled_keeps_its_drafts(engine: Engine) -> None:
    for _ in range(3):
        engine.send(2, 5)
    engine.step()
    assert engine.step(found=0).scheduled == [(0, 4), (1, 4)]
    assert engine.step().scheduled == [(0, 1), (1, 1), (2, 4)]


@on(block_size=4, usable=6, enable_prefix_caching=False, **NGRAM)
def test_a_preempted_request_comes_back_without_drafts(engine: Engine) -> None:
    engine.send(8, 12)
    engine.send(8, 12)
    engine.step()
    step = engine.step(stand=1)
    assert (step.scheduled, step.preempted) == ([(0, 4), (1, 4)], [])
    while not step.preempted:
        step = engine.step(stand=3)
    assert step.preempted == [1]
    while 1 not in step.resumed:
        step = engine.step(stand=3)
    assert dict(step.scheduled)[1] == 8 + 1 + 2  # prompt, and what two steps yielded: no drafts


@on(block_size=4, usable=64, but_not="fast", **NGRAM)
def test_blocks_of_rejected_drafts_are_kept_for_what_comes(engine: Engine) -> None:
    request = engine.send(7, 20)
    engine.step()
    engine.step()
    table = engine.block_table(request)
    assert len(table) == 3  # seven tokens, one and three drafts
    engine.step()
    assert engine.block_table(request) == table


@on(block_size=4, **NGRAM)
def test_drafts_are_never_found_by_others(engine: Engine) -> None:
    """Ten tokens are computed, three of them drafts: of the seven that are known one block is full."""
    first = engine.send(6, 20)
    engine.step()
    again = engine.send((*first.prompt, (first.output_key, 20)), 1)
    step = engine.step()
    assert step.scheduled[0] == (0, 4)
    assert step.hits == {again.index: 4}


# ---------------------------------------------------------------- dummy drafts


@on(block_size=16, max_num_batched_tokens=64, **NGRAM)
def test_an_admission_of_one_token_is_padded_beside_decodes(engine: Engine) -> None:
    engine.send(20, 9)
    engine.step()
    engine.send(1, 9)
    plan = engine.schedule()
    assert [(row.tokens, row.drafts, row.padded) for row in plan.scheduled] == [(4, 3, False), (4, 3, True)]
    engine.update(plan, stand=3)
    if engine.name == "readable":
        assert [request.num_outputs for request in engine.requests] == [5, 1]


@on(block_size=16, max_num_batched_tokens=64, **NGRAM)
def test_it_is_not_padded_in_an_idle_engine(engine: Engine) -> None:
    engine.send(1, 9)
    assert engine.step().scheduled == [(0, 1)]


@on(block_size=16, max_num_batched_tokens=64, **NGRAM)
def test_it_is_padded_in_an_idle_engine_behind_a_prefix_hit(engine: Engine) -> None:
    engine.send((("a", 17),), 1)
    engine.drain()
    engine.send((("a", 17),), 1)
    assert engine.step().scheduled == [(1, 4)]


@on(block_size=16, max_num_batched_tokens=64, **NGRAM)
def test_it_is_not_padded_beside_a_prompt_that_goes_on(engine: Engine) -> None:
    engine.send(100, 9)
    engine.step()
    engine.send(1, 9)
    assert engine.step().scheduled == [(0, 36), (1, 1)]


@on(block_size=16, max_num_batched_tokens=64, max_model_len=24, **NGRAM)
def test_it_is_not_padded_beyond_the_window(engine: Engine) -> None:
    engine.send((("a", 20),), 9)
    engine.step()
    engine.send((("a", 22),), 2)
    assert engine.step().scheduled[1] == (1, 6)
    engine.send((("a", 17),), 2)
    assert engine.step().scheduled[-1] == (2, 4)


@on(block_size=16, max_num_batched_tokens=10, max_num_seqs=4, **NGRAM)
def test_without_budget_for_dummies_nobody_is_admitted(engine: Engine) -> None:
    engine.send(2, 9)
    engine.send(2, 9)
    engine.step()
    engine.send(1, 9)
    step = engine.step()
    assert (step.scheduled, step.waiting) == ([(0, 4), (1, 4)], [2])


# ---------------------------------------------------------------- a draft model


@on(block_size=16, max_num_batched_tokens=16, max_num_seqs=8, **DRAFT)
def test_a_draft_model_takes_an_input_slot_of_every_row(engine: Engine) -> None:
    """Rows of four and a slot: three fit into sixteen, and a token is left."""
    for _ in range(4):
        engine.send(2, 30)
    assert engine.step().scheduled == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert engine.step().scheduled == [(0, 4), (1, 4), (2, 4)]


@on(block_size=16, max_num_batched_tokens=16, **DRAFT)
def test_a_prompt_leaves_room_for_its_slot(engine: Engine) -> None:
    engine.send(40, 2)
    assert [engine.step().scheduled for _ in range(3)] == [[(0, 15)], [(0, 15)], [(0, 10)]]


@on(block_size=4, usable=64, **DRAFT)
def test_a_draft_model_writes_ahead(engine: Engine) -> None:
    """Blocks for what is computed and three drafts more."""
    engine.send(6, 9)
    assert engine.step().free == 64 - 3  # 6 + 3
    assert engine.step().free == 64 - 4  # 6 + 4 + 3


# ---------------------------------------------------------------- off above a batch


@on(block_size=16, speculation_off_above=2, **NGRAM)
def test_no_drafts_are_asked_for_while_more_run(engine: Engine) -> None:
    engine.send(4, 30)
    engine.send(4, 30)
    engine.step()
    assert engine.step().scheduled == [(0, 4), (1, 4)]
    engine.send(1, 2)  # and nobody is padded
    assert engine.step().scheduled == [(0, 4), (1, 4), (2, 1)]
    step = engine.step()
    assert (step.scheduled, step.finished) == ([(0, 1), (1, 1), (2, 1)], [2])
    assert engine.step().scheduled == [(0, 1), (1, 1)]
    assert engine.step().scheduled == [(0, 4), (1, 4)]


# ---------------------------------------------------------------- what fits


def test_a_request_needs_room_for_its_drafts() -> None:
    config = EngineConfig(num_gpu_blocks=8, block_size=16)
    assert config.why_it_can_never_run(100, 13) is None
    ngram = EngineConfig(num_gpu_blocks=8, block_size=16, **NGRAM)  # type: ignore[arg-type]
    assert ngram.why_it_can_never_run(100, 10) is None
    reason = ngram.why_it_can_never_run(100, 11)
    assert reason == "110 tokens and 3 drafts need 8 KV blocks of 16, 7 are usable"
    draft = EngineConfig(num_gpu_blocks=8, block_size=16, **DRAFT)  # type: ignore[arg-type]
    assert draft.why_it_can_never_run(100, 7) is None
    assert draft.why_it_can_never_run(100, 8) is not None


def test_the_window_bounds_drafts_too() -> None:
    config = EngineConfig(num_gpu_blocks=8, block_size=16, max_model_len=112, **DRAFT)  # type: ignore[arg-type]
    assert config.why_it_can_never_run(100, 50) is None
