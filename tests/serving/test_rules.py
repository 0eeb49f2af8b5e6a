"""The scheduling semantics, rule by rule, on every scheduler that takes the settings."""

from __future__ import annotations

from tests.serving.driver import Engine, on

# ---------------------------------------------------------------- 1. the budget, and the null block


@on(max_num_batched_tokens=100)
def test_rule_1_a_step_computes_at_most_its_budget(engine: Engine) -> None:
    for _ in range(3):
        engine.send(70, 2)
    assert engine.step().scheduled == [(0, 70), (1, 30)]
    assert engine.step().scheduled == [(0, 1), (1, 40), (2, 59)]


@on(usable=6)
def test_rule_1_the_null_block_is_not_usable(engine: Engine) -> None:
    assert engine.config.num_gpu_blocks == 7
    assert engine.scheduler.free_blocks == 6


@on(usable=6, but_not="fast")
def test_rule_1_block_ids_start_behind_the_null_block(engine: Engine) -> None:
    request = engine.send(96, 1)
    engine.schedule()
    assert sorted(engine.block_table(request)) == [1, 2, 3, 4, 5, 6]


# ---------------------------------------------------------------- 2. running first


@on(max_num_batched_tokens=64)
def test_rule_2_running_first_in_admission_order(engine: Engine) -> None:
    engine.send(10, 5)
    engine.send(10, 5)
    engine.step()
    engine.send(100, 1)
    step = engine.step()
    assert step.scheduled == [(0, 1), (1, 1), (2, 62)]
    assert step.running == [0, 1, 2]


@on(max_num_batched_tokens=2)
def test_rule_2_a_budget_used_up_by_those_running_admits_nobody(engine: Engine) -> None:
    for _ in range(3):
        engine.send(1, 3)
    assert [engine.step().scheduled for _ in range(3)] == [[(0, 1), (1, 1)]] * 3
    assert engine.step().scheduled == [(2, 1)]


@on(max_num_batched_tokens=512, long_prefill_token_threshold=40)
def test_rule_2_threshold_caps_chunks_and_admissions(engine: Engine) -> None:
    engine.send(100, 2)
    engine.send(50, 2)
    assert engine.step().scheduled == [(0, 40), (1, 40)]
    assert engine.step().scheduled == [(0, 40), (1, 10)]


@on(max_num_batched_tokens=512, long_prefill_token_threshold=40)
def test_rule_2_threshold_does_not_apply_to_a_request_alone(engine: Engine) -> None:
    engine.send(100, 2)
    assert engine.step().scheduled == [(0, 100)]


@on(max_num_batched_tokens=512, long_prefill_token_threshold=40)
def test_rule_2_threshold_counts_who_is_there_when_the_step_begins(engine: Engine) -> None:
    engine.send(100, 1)
    engine.send(200, 2)
    assert engine.step().scheduled == [(0, 40), (1, 40)]
    assert engine.step().scheduled == [(0, 40), (1, 40)]
    assert engine.step().scheduled == [(0, 20), (1, 40)]  # capped for the last time: one of the two ends here
    assert engine.step().scheduled == [(1, 80)]


@on(max_num_batched_tokens=60, long_prefill_token_threshold=40, enable_chunked_prefill=False)
def test_rule_2_threshold_chunks_prompts_even_with_chunking_off(engine: Engine) -> None:
    engine.send(50, 3)
    engine.send(20, 3)
    assert engine.step().scheduled == [(0, 40), (1, 20)]
    assert engine.step().scheduled == [(0, 10), (1, 1)]


@on(max_model_len=20)
def test_rule_2_nothing_is_computed_beyond_the_window(engine: Engine) -> None:
    """The last token of the window is sampled and never computed: 19 of 20 tokens get their KV."""
    engine.send(15, 50)
    computed = sum(tokens for step in engine.drain() for _, tokens in step.scheduled)
    assert computed == 19


# ---------------------------------------------------------------- 3. who loses its blocks


@on(usable=4, enable_prefix_caching=False)
def test_rule_3_fcfs_takes_the_last_admitted(engine: Engine) -> None:
    engine.send(16, 20)
    engine.send(16, 20)
    engine.send(16, 20)
    engine.step()
    step = engine.step()
    assert step.preempted == [2]
    assert step.scheduled == [(0, 1), (1, 1)]


@on(usable=4, policy="priority")
def test_rule_3_priority_takes_the_worst(engine: Engine) -> None:
    engine.send(16, 20, priority=3)
    engine.send(16, 20, priority=5)
    engine.send(16, 20, priority=1)
    assert engine.step().running == [2, 0, 1]
    step = engine.step()
    assert step.preempted == [1]
    assert step.scheduled == [(2, 1), (0, 1)]


@on(usable=4, policy="priority")
def test_rule_3_priority_takes_the_latest_among_equally_important(engine: Engine) -> None:
    engine.send(16, 20, arrival=7.0)
    engine.send(16, 20, arrival=9.0)
    engine.send(16, 20, arrival=8.0)
    assert engine.step().running == [0, 2, 1]
    assert engine.step().preempted == [1]


@on(usable=5, policy="priority", max_num_batched_tokens=34, scheduler_reserve_full_isl=False)
def test_rule_3_victim_scheduled_in_this_step_gives_its_budget_back(engine: Engine) -> None:
    """The worse one runs first and is scheduled first; the better one behind it takes its blocks and its budget."""
    engine.send(20, 30, priority=5)  # two blocks, runs first
    engine.step()
    engine.send(60, 5, priority=1)
    assert engine.step().scheduled == [(0, 1), (1, 33)]  # two and three blocks
    step = engine.step()
    assert step.preempted == [0]
    assert step.scheduled == [(1, 27)]
    assert step.free == 1


@on(usable=5, policy="priority", max_num_batched_tokens=20, scheduler_reserve_full_isl=False)
def test_rule_3_budget_given_back_is_used_by_those_behind(engine: Engine) -> None:
    engine.send(17, 30, priority=5)
    engine.step()
    engine.send(15, 30, priority=1)
    engine.step()
    engine.send(40, 5, priority=2)
    assert engine.step().scheduled == [(0, 1), (1, 1), (2, 18)]
    step = engine.step()  # the second needs a block
    assert step.preempted == [0]
    assert step.scheduled == [(1, 1), (2, 19)]


@on(usable=3)
def test_rule_3_the_last_admitted_may_be_its_own_victim(engine: Engine) -> None:
    engine.send(17, 20)
    engine.send(16, 20)
    engine.step()
    step = engine.step()
    assert step.preempted == [1]
    assert step.scheduled == [(0, 1)]
    assert step.free == 1


@on(usable=3, policy="priority")
def test_rule_3_those_behind_a_self_victim_get_nothing_even_if_they_are_better(engine: Engine) -> None:
    engine.send(15, 40, priority=9)
    engine.step()
    engine.send(17, 10, priority=1)
    assert engine.step().scheduled == [(0, 1), (1, 17)]
    step = engine.step()
    assert step.preempted == [0]
    assert step.scheduled == []
    assert engine.step().scheduled == [(1, 1)]


# ---------------------------------------------------------------- 4. preemption


@on(usable=4, enable_prefix_caching=False)
def test_rule_4_preempted_request_frees_all_and_waits_at_the_front(engine: Engine) -> None:
    engine.send(16, 20)
    engine.send(16, 20)
    engine.send(16, 20)
    engine.step()
    engine.send(8, 1)
    step = engine.step()
    assert step.preempted == [2]
    assert step.waiting == [2, 3]
    assert step.free == 0  # the block it lost went to the one before it


@on(usable=9, enable_prefix_caching=False)
def test_rule_4_preempted_request_keeps_its_output_and_recomputes_all(engine: Engine) -> None:
    engine.send(64, 33)
    engine.send(60, 33)
    engine.step()
    steps = engine.drain()
    lost = next(i for i, step in enumerate(steps) if step.preempted)
    back = next(step for step in steps[lost:] if step.resumed)
    outputs = 1 + lost  # one of the prefill and one of each decode before
    assert steps[lost].preempted == [1]
    assert dict(back.scheduled)[1] == 60 + outputs
    assert back.resumed == {1: 0}
    assert sum(1 in step.sampled for step in steps) == 32


@on(usable=9)
def test_rule_4_preempted_request_hits_its_own_blocks(engine: Engine) -> None:
    engine.send(64, 33)
    engine.send(64, 32)
    engine.step()
    assert engine.step().preempted == [1]
    back = next(step for step in engine.drain() if step.resumed)
    assert back.resumed[1] > 0
    assert back.resumed[1] % 16 == 0


@on(usable=4, policy="priority")
def test_rule_4_priority_sorts_the_victim_back_into_the_queue(engine: Engine) -> None:
    engine.send(16, 20, priority=1)
    engine.send(16, 20, priority=1)
    engine.send(16, 20, priority=4)
    engine.step()
    engine.send(8, 1, priority=2)
    step = engine.step()
    assert step.preempted == [2]
    assert step.waiting == [3, 2]


@on(usable=4, policy="priority", enable_prefix_caching=False)
def test_rule_4_among_equals_the_victim_is_the_earliest_in_running_order(engine: Engine) -> None:
    engine.send(16, 20, arrival=0)
    engine.send(16, 20, arrival=0)
    engine.send(16, 20, arrival=0)
    engine.step()
    step = engine.step()
    assert step.preempted == [0]
    assert step.scheduled == [(1, 1), (2, 1)]


@on(usable=200, policy="priority", max_num_seqs=1)
def test_rule_4_equal_priority_and_arrival_fall_to_the_smaller_index(engine: Engine) -> None:
    for _ in range(4):
        engine.send(16, 1, arrival=0)
    assert [step.finished for step in engine.drain()] == [[0], [1], [2], [3]]


# ---------------------------------------------------------------- 5. admission


@on(usable=4, enable_prefix_caching=False)
def test_rule_5_nobody_is_admitted_in_a_step_that_preempted(engine: Engine) -> None:
    """The victim leaves a block that the short one behind it could use at once, and may not."""
    engine.send(20, 20)
    engine.send(32, 20)
    engine.step()
    engine.send(3, 2)
    step = engine.step()
    assert step.preempted == [1]
    assert step.free == 2
    assert step.hits == {}
    assert engine.step().waiting == [1, 2]  # and now the head of the queue has no room


@on(usable=64, max_num_seqs=2)
def test_rule_5_at_most_max_num_seqs_run(engine: Engine) -> None:
    for _ in range(3):
        engine.send(5, 2)
    assert engine.step().running == [0, 1]
    assert engine.step().running == [0, 1]
    assert engine.step().running == [2]


@on(block_size=16)
def test_rule_5_hits_are_whole_blocks_and_never_the_last_token(engine: Engine) -> None:
    engine.send((("a", 64),))
    engine.step()
    for tokens, hit in ((15, 0), (16, 0), (17, 16), (40, 32), (64, 48), (65, 64), (100, 64)):
        request = engine.send((("a", tokens),))
        step = engine.step()
        assert step.hits == {request.index: hit}
        assert step.scheduled == [(request.index, tokens - hit)]
        if tokens > 64:
            break  # from here on more of the text is cached


@on(max_num_batched_tokens=64, enable_chunked_prefill=False)
def test_rule_5_without_chunking_a_prompt_beyond_the_budget_stops_admission(engine: Engine) -> None:
    engine.send(40, 3)
    engine.send(30, 3)
    engine.send(10, 3)
    assert engine.step().scheduled == [(0, 40)]
    assert engine.step().scheduled == [(0, 1), (1, 30), (2, 10)]


@on(usable=10, max_num_batched_tokens=32)
def test_rule_5_admission_asks_for_room_for_the_whole_prompt(engine: Engine) -> None:
    engine.send(90, 2)  # six blocks, two in the first step
    engine.send(81, 2)  # six blocks
    for _ in range(3):
        step = engine.step()
        assert step.running == [0]
    assert step.free == 4
    engine.drain()


@on(usable=10, max_num_batched_tokens=32, scheduler_reserve_full_isl=False)
def test_rule_5_without_the_reserve_room_for_the_chunk_is_enough(engine: Engine) -> None:
    engine.send(90, 2)
    engine.send(81, 2)
    engine.step()
    engine.step()
    assert engine.step().scheduled == [(0, 26), (1, 6)]
    engine.drain()


@on(usable=10, max_num_batched_tokens=32)
def test_rule_5_only_the_chunk_takes_blocks(engine: Engine) -> None:
    engine.send(90, 2)
    assert engine.step().free == 8


@on(usable=9, enable_prefix_caching=False)
def test_rule_5_resumed_request_needs_room_for_prompt_and_output(engine: Engine) -> None:
    """It owned four blocks when it left, and comes back when five are free: 64 tokens of prompt and its first answer."""
    engine.send(64, 40)
    engine.send(64, 40)
    engine.step()
    assert engine.step().preempted == [1]
    back = engine.step()
    assert (back.free, back.resumed) == (4, {})
    steps = engine.drain()
    finish = next(i for i, step in enumerate(steps) if step.finished == [0])
    assert steps[finish + 1].resumed == {1: 0}


@on(usable=19, watermark=0.2)
def test_rule_5_watermark_blocks_stay_free_while_something_runs(engine: Engine) -> None:
    """int(0.2 x 20) = 4 blocks: the share is one of all blocks, the null block included."""
    engine.send(16 * 10, 2)
    engine.send(16 * 6, 2)
    engine.send(16 * 5, 2)
    assert engine.step().running == [0]  # 9 free, six asked for, only five may be taken
    assert engine.other(watermark=0.19).config.watermark_blocks == 3


@on(usable=19, watermark=0.2)
def test_rule_5_watermark_is_met_exactly(engine: Engine) -> None:
    engine.send(16 * 10, 2)
    engine.send(16 * 5, 2)
    step = engine.step()
    assert step.running == [0, 1]
    assert step.free == 4


@on(usable=19, watermark=0.2)
def test_rule_5_watermark_does_not_bind_an_idle_engine_or_those_running(engine: Engine) -> None:
    engine.send(16 * 19, 1)
    assert engine.step().free == 0
    engine.send(16 * 18, 3)
    engine.step()
    assert engine.step().free == 0


@on(usable=10)
def test_rule_5_no_room_for_the_head_stops_admission(engine: Engine) -> None:
    engine.send(100, 3)
    engine.send(100, 3)
    engine.send(5, 3)
    step = engine.step()
    assert step.running == [0]
    assert step.waiting == [1, 2]


@on(usable=10)
def test_rule_5_waiting_request_never_preempts_a_running_one(engine: Engine) -> None:
    engine.send(100, 3)
    engine.send(100, 3)
    assert all(not step.preempted for step in engine.drain())


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


# ---------------------------------------------------------------- 9. after schedule


@on(max_num_batched_tokens=100)
def test_rule_9_a_partial_chunk_samples_nothing(engine: Engine) -> None:
    engine.send(250, 2)
    steps = engine.drain()
    assert [step.scheduled for step in steps] == [[(0, 100)], [(0, 100)], [(0, 50)], [(0, 1)]]
    assert [step.sampled for step in steps] == [[], [], [0], [0]]


@on(max_num_batched_tokens=100)
def test_rule_9_context_grows_by_what_was_scheduled(engine: Engine) -> None:
    engine.send(250, 2)
    contexts = []
    while engine.scheduler.has_work:
        plan = engine.schedule()
        contexts.append(plan.scheduled[0].context)
        engine.scheduler.update(plan)
    assert contexts == [0, 100, 200, 250]


# ---------------------------------------------------------------- update


@on()
def test_update_ends_a_request_at_what_it_really_says(engine: Engine) -> None:
    engine.send(10, 3, max_tokens=50)
    assert [step.finished for step in engine.drain()] == [[], [], [0]]


@on()
def test_update_ends_a_request_at_max_tokens(engine: Engine) -> None:
    engine.send(10, 50, max_tokens=2)
    assert len(engine.drain()) == 2


@on(max_model_len=30)
def test_update_ends_a_request_at_the_window(engine: Engine) -> None:
    engine.send(25, 50)
    assert len(engine.drain()) == 5


@on(usable=6)
def test_update_frees_the_blocks_of_a_finished_request_at_once(engine: Engine) -> None:
    engine.send(90, 1)
    step = engine.step()
    assert (step.free, step.free_after) == (0, 6)


@on(max_num_batched_tokens=64)
def test_update_counts_hits_once_a_request_and_not_once_a_chunk(engine: Engine) -> None:
    engine.send((("a", 320),), 2)
    engine.drain()
    engine.send((("a", 320), ("b", 300)), 2)
    engine.drain()
    prefix = engine.scheduler.prefix
    assert (prefix.requests, prefix.queries, prefix.hits) == (2, 320 + 620, 320)


@on(usable=9)
def test_update_counts_readmissions_apart(engine: Engine) -> None:
    engine.send(64, 33)
    engine.send(64, 32)
    engine.drain()
    prefix = engine.scheduler.prefix
    assert (prefix.requests, prefix.queries, prefix.hits) == (2, 128, 0)
    assert prefix.preempted_requests == 1
    assert prefix.preempted_queries == 65
    assert prefix.preempted_hits > 0


@on(usable=8)
def test_aborted_request_frees_its_blocks_and_gets_no_token(engine: Engine) -> None:
    first = engine.send(64, 5)
    engine.send(64, 5)
    plan = engine.schedule()
    assert engine.scheduler.abort(first)
    assert engine.scheduler.free_blocks == 4
    assert engine.scheduler.update(plan) == []
    assert not engine.scheduler.abort(first)
    assert len(engine.drain()) == 4
