"""Asynchronous scheduling, rule by rule: a step is decided before the tokens of the one before it are known."""

from __future__ import annotations

from collections import deque

from serving.plan import StepPlan
from tests.serving.driver import Engine, on

ASYNC = {"async_scheduling": True, "block_size": 16}


class Pipeline:
    """An engine with one step in flight while the next is decided."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.in_flight: deque[StepPlan] = deque()
        self.plan = StepPlan(0, [], None)  # type: ignore[arg-type]

    def step(self, stand: int = 0) -> tuple[list[tuple[int, int]], list[int]]:
        """Decides one step and ends the one before; what it schedules, and who has ended."""
        self.plan = self.engine.schedule()
        self.in_flight.append(self.plan)
        finished = self.engine.update(self.in_flight.popleft(), stand) if len(self.in_flight) > 1 else []
        return [(row.request.index, row.tokens) for row in self.plan.scheduled], finished

    def drain(self) -> list[tuple[list[tuple[int, int]], list[int]]]:
        steps = []
        while self.engine.scheduler.has_work:
            steps.append(self.step())
        while self.in_flight:
            self.engine.update(self.in_flight.popleft())
        assert self.engine.scheduler.free_blocks == self.engine.config.usable_blocks
        return steps


@on(**ASYNC)
def test_the_next_token_is_scheduled_before_the_last_is_known(engine: Engine) -> None:
    pipeline = Pipeline(engine)
    engine.send(20, 3)
    assert pipeline.step() == ([(0, 20)], [])
    assert pipeline.step() == ([(0, 1)], [])
    assert pipeline.step() == ([(0, 1)], [])
    assert pipeline.step() == ([], [0])


@on(**ASYNC)
def test_a_length_limit_is_foreseen(engine: Engine) -> None:
    for output in (1, 2, 3):
        engine.send(10, output)
    steps = Pipeline(engine).drain()
    assert [rows for rows, _ in steps] == [[(0, 10), (1, 10), (2, 10)], [(1, 1), (2, 1)], [(2, 1)], []]


@on(max_model_len=12, **ASYNC)
def test_so_is_the_window(engine: Engine) -> None:
    engine.send(10, 50)
    assert [rows for rows, _ in Pipeline(engine).drain()] == [[(0, 10)], [(0, 1)], []]


@on(**ASYNC)
def test_a_stop_that_nobody_foresees_wastes_one_step(engine: Engine) -> None:
    engine.send(10, 2, max_tokens=50)
    steps = Pipeline(engine).drain()
    assert [rows for rows, _ in steps] == [[(0, 10)], [(0, 1)], [(0, 1)]]
    assert [finished for _, finished in steps] == [[], [], [0]]


@on(usable=4, enable_prefix_caching=False, **ASYNC)
def test_a_token_in_flight_at_a_preemption_still_counts(engine: Engine) -> None:
    """Both need a third block for the third answer token; the second loses all, and its second token is on its way."""
    pipeline = Pipeline(engine)
    engine.send(30, 6)
    engine.send(30, 6)
    for _ in range(3):
        pipeline.step()
    assert pipeline.step()[0] == [(0, 1)]
    assert [request.index for request in pipeline.plan.preempted] == [1]
    steps = pipeline.drain()
    back = next(rows for rows, _ in steps if (1, 33) in rows)
    assert back == [(1, 33)]  # prompt and three tokens
    assert sorted(i for _, finished in steps for i in finished) == [0, 1]


@on(usable=4, enable_prefix_caching=False, **ASYNC)
def test_it_may_finish_a_request_that_waits(engine: Engine) -> None:
    pipeline = Pipeline(engine)
    engine.send(30, 6)
    engine.send(30, 3, max_tokens=9)
    for _ in range(3):
        pipeline.step()
    assert pipeline.step() == ([(0, 1)], [1])
    assert [request.index for request in pipeline.plan.preempted] == [1]
    assert list(engine.scheduler.waiting) == []


@on(**ASYNC | {"block_size": 4})
def test_blocks_with_unknown_text_are_found_once_it_is_known(engine: Engine) -> None:
    """The step that fills the second block has been decided; what is in it is known when the one before it has ended."""
    pipeline = Pipeline(engine)
    first = engine.send(6, 20)
    pipeline.step()
    pipeline.step()
    pipeline.step()  # computes the eighth token, whose text is in flight
    again = engine.send((*first.prompt, (first.output_key, 20)), 1)
    pipeline.step()
    assert {a.request.index: a.hit_tokens for a in pipeline.plan.admitted} == {again.index: 8}


@on(**ASYNC)
def test_a_request_aborted_in_flight_gets_nothing(engine: Engine) -> None:
    pipeline = Pipeline(engine)
    request = engine.send(10, 5)
    pipeline.step()
    plan = engine.schedule()
    pipeline.in_flight.append(plan)
    assert engine.scheduler.abort(request)
    assert [engine.update(pipeline.in_flight.popleft()) for _ in range(2)] == [[], []]
    assert engine.scheduler.free_blocks == engine.config.usable_blocks


@on(speculation="draft", num_speculative_tokens=3, **ASYNC)
def test_with_speculation_all_drafts_count_as_right_until_they_are_verified(engine: Engine) -> None:
    pipeline = Pipeline(engine)
    engine.send(20, 30)
    contexts = []
    for _ in range(5):
        pipeline.step(stand=1)
        contexts += [(row.context, row.tokens, row.drafts) for row in pipeline.plan.scheduled]
    # Of three drafts a step two fall, and the step decided meanwhile is put right by them.
    assert contexts == [(0, 20, 0), (20, 4, 3), (24, 4, 3), (26, 4, 3), (28, 4, 3)]
