"""The scheduling semantics, rule by rule, on every scheduler that takes the settings: 1 to 5, who runs, who waits, who loses."""

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
