"""The scheduling semantics, rule by rule: 6 to 8, what blocks are needed, found again and evicted."""

from __future__ import annotations

from tests.serving.driver import Engine, on

# ---------------------------------------------------------------- 6. blocks needed


@on(usable=8)
def test_rule_6_hits_that_nobody_holds_are_taken_from_the_free_ones(engine: Engine) -> None:
    engine.send((("a", 64),))
    engine.step()
    engine.send((("a", 80),), 4)
    step = engine.step()
    assert step.hits == {1: 64}
    assert step.free == 3


@on(usable=8)
def test_rule_6_hits_that_somebody_holds_cost_nothing(engine: Engine) -> None:
    engine.send((("a", 64),), 5)
    engine.step()
    engine.send((("a", 64), ("b", 16)), 5)
    step = engine.step()
    assert step.hits == {1: 64}
    assert step.free == 2  # 4 shared, one for the first one's answer, one for the second's own text


@on(usable=8)
def test_rule_6_free_hits_do_not_make_room(engine: Engine) -> None:
    """Four of eight blocks are free and cached, and the prompt needs them and one more than the others that are free."""
    engine.send((("a", 64),), 1)
    engine.step()
    engine.send(64, 3)
    engine.step()
    request = engine.send((("a", 64), ("b", 1)), 1)
    assert request.index in engine.step().waiting


# ---------------------------------------------------------------- 7. hashes


@on(max_num_batched_tokens=256)
def test_rule_7_a_later_request_of_the_same_step_hits_what_this_step_computes(engine: Engine) -> None:
    engine.send((("a", 50),), 2)
    engine.send((("a", 50),), 2)
    step = engine.step()
    assert step.hits == {0: 0, 1: 48}
    assert step.scheduled == [(0, 50), (1, 2)]


@on(max_num_batched_tokens=100, long_prefill_token_threshold=40)
def test_rule_7_only_full_blocks_of_what_is_scheduled_so_far_are_published(engine: Engine) -> None:
    engine.send((("a", 200),), 2)
    engine.send((("a", 200),), 2)
    assert engine.step().hits == {0: 0, 1: 32}  # 40 tokens: two full blocks
    engine.send((("a", 200),), 2)
    assert engine.step().hits == {2: 112}  # the twin is 32 + 40 + 40 tokens far: seven


@on(max_num_batched_tokens=60)
def test_rule_7_twin_of_a_chunked_prompt_hits_the_chunks_that_are_scheduled(engine: Engine) -> None:
    engine.send((("a", 50),), 2)
    engine.send((("a", 200),), 2)
    assert engine.step().hits == {0: 0, 1: 48}


@on()
def test_rule_7_hash_covers_the_text_before_and_not_the_segment_borders(engine: Engine) -> None:
    engine.send((("a", 20), ("b", 44)))
    engine.step()
    engine.send((("x", 16), ("b", 44)))  # same text later, another one before
    assert engine.step().hits == {1: 0}
    engine.send((("a", 20), ("b", 12), ("c", 32)))
    assert engine.step().hits == {2: 32}
    engine.send((("a", 7), ("a", 13), ("b", 44)))  # "a" from its start again: another text after seven tokens
    assert engine.step().hits == {3: 0}


@on()
def test_rule_7_answers_are_cached_like_prompts(engine: Engine) -> None:
    engine.send((("a", 30),), 35)
    engine.drain()
    engine.send((("a", 30), ("out:0", 35), ("b", 10)), 1)
    assert engine.step().hits == {1: 64}  # all but the last sampled token has its KV


@on(usable=8)
def test_rule_7_duplicates_are_not_merged_and_the_first_is_found(engine: Engine) -> None:
    """Two fully cached twins each recompute the last block, which is then held twice."""
    engine.send((("a", 32),), 9)
    engine.send((("a", 32),), 9)
    step = engine.step()
    assert step.hits == {0: 0, 1: 16}
    assert step.free == 8 - 3


# ---------------------------------------------------------------- 8. the free queue


@on(usable=6)
def test_rule_8_blocks_without_text_are_taken_before_cached_ones(engine: Engine) -> None:
    engine.send((("a", 35),))  # two cached blocks, one partial
    engine.step()
    engine.send(64)  # the partial one and the three never used
    engine.step()
    engine.send((("a", 35),))
    assert engine.step().hits == {2: 32}


@on(usable=4)
def test_rule_8_the_deepest_block_of_a_prompt_is_evicted_first(engine: Engine) -> None:
    engine.send((("a", 64),))
    engine.step()
    engine.send(16)
    engine.step()
    engine.send((("a", 64),))
    assert engine.step().hits == {2: 48}


@on(usable=4)
def test_rule_8_least_recently_used_goes_first(engine: Engine) -> None:
    engine.send((("a", 17),))
    engine.step()
    engine.send((("b", 17),))
    engine.step()
    engine.send((("a", 17),))  # used again
    engine.step()
    engine.send(48)
    engine.step()
    engine.send((("a", 17),))
    assert engine.step().hits == {4: 16}


@on(usable=4)
def test_rule_8_a_hit_leaves_the_free_queue(engine: Engine) -> None:
    engine.send((("a", 33),))
    engine.step()
    engine.send((("a", 33),), 3)
    engine.step()
    engine.send(33)
    assert engine.step().waiting == [2]  # one block is free, the cached ones are held
    assert all(not step.preempted for step in engine.drain())


@on(usable=6, enable_prefix_caching=False, but_not="fast")
def test_rule_8_with_caching_off_the_last_freed_is_taken_first(engine: Engine) -> None:
    engine.send(64)
    engine.step()
    request = engine.send(32)
    engine.schedule()
    assert engine.block_table(request) == [4, 3]
