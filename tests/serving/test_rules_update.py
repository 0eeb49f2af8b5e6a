"""The scheduling semantics, rule by rule: 9 and the update, what a step leaves behind."""

from __future__ import annotations

from tests.serving.driver import Engine, on

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
