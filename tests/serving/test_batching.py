"""The other batching strategies: prompts alone before decodes, and one closed batch at a time."""

from __future__ import annotations

from tests.serving.driver import Engine, Step, on


def kinds(steps: list[Step]) -> list[str]:
    """`prefill`, `decode`, `mixed` or `empty` by the rows of one token (prompts here are longer)."""
    found = []
    for step in steps:
        lengths = {n > 1 for _, n in step.scheduled}
        found.append({frozenset(): "empty", frozenset({True}): "prefill", frozenset({False}): "decode"}.get(
            frozenset(lengths), "mixed"))  # fmt: skip
    return found


@on(batching="chunked", max_num_batched_tokens=64)
def test_chunked_mixes_decodes_and_prompts(engine: Engine) -> None:
    engine.send(40, 5)
    engine.step()
    engine.send(40, 5)
    assert kinds([engine.step()]) == ["mixed"]


@on(batching="decode_first", usable=32, max_num_batched_tokens=64, long_prefill_token_threshold=8)
def test_a_prompt_takes_no_blocks_of_decodes_where_they_come_first(engine: Engine) -> None:
    """A long prompt was admitted with room for it; decodes that came after it have grown into that room meanwhile."""
    preemptions = {}
    for other in (engine, engine.other(batching="chunked")):
        other.send(300, 2)
        for _ in range(5):
            other.send(10, 38)
        steps = other.drain()
        preemptions[other.config.batching] = [i for step in steps for i in step.preempted]
        assert sum(len(step.sampled) for step in steps) == 2 + 5 * 38
    assert preemptions["decode_first"] == []
    assert preemptions["chunked"] != []


@on(batching="decode_first", max_num_batched_tokens=32, long_prefill_token_threshold=31)
def test_decode_first_puts_decodes_before_a_prompt_that_was_admitted_earlier(engine: Engine) -> None:
    engine.send(200, 2)
    engine.send(1, 9)
    assert [engine.step().scheduled for _ in range(2)] == [[(0, 31), (1, 1)], [(1, 1), (0, 31)]]


@on(batching="decode_first", usable=8, max_num_batched_tokens=64)
def test_decode_first_comes_through_memory_pressure(engine: Engine) -> None:
    for _ in range(6):
        engine.send(30, 40)
    steps = engine.drain()
    assert any(step.preempted for step in steps)
    assert sum(len(step.sampled) for step in steps) == 6 * 40


@on(batching="prefill_first", max_num_batched_tokens=64)
def test_prefill_first_runs_prompts_alone_before_any_decode(engine: Engine) -> None:
    engine.send(40, 3)
    engine.step()
    engine.send(40, 3)
    engine.send(40, 3)
    steps = engine.drain()
    assert kinds(steps) == ["prefill", "prefill", "decode", "decode"]
    assert [step.scheduled for step in steps[:3]] == [
        [(1, 40), (2, 24)],
        [(2, 16)],
        [(0, 1), (1, 1), (2, 1)],
    ]


@on(batching="prefill_first", usable=6)
def test_prefill_first_decodes_when_no_prompt_fits(engine: Engine) -> None:
    engine.send(60, 4)
    engine.send(60, 4)
    steps = engine.drain()
    assert kinds(steps) == ["prefill", "decode", "decode", "decode"] * 2
    assert not any(step.preempted for step in steps)


@on(batching="prefill_first", usable=64, max_num_seqs=2)
def test_prefill_first_decodes_when_the_batch_is_full(engine: Engine) -> None:
    for _ in range(3):
        engine.send(20, 2)
    assert kinds(engine.drain()) == ["prefill", "decode", "prefill", "decode"]


@on(batching="prefill_first", usable=8, max_num_batched_tokens=256)
def test_prefill_first_comes_through_memory_pressure(engine: Engine) -> None:
    for _ in range(6):
        engine.send(30, 40)
    steps = engine.drain()
    assert any(step.preempted for step in steps)
    assert "mixed" not in kinds(steps)
    assert sum(len(step.sampled) for step in steps) == 6 * 40


@on(batching="static", max_num_seqs=2)
def test_static_runs_a_batch_until_its_slowest_ends(engine: Engine) -> None:
    engine.send(20, 2)
    engine.send(20, 5)
    engine.send(20, 3)
    steps = engine.drain()
    assert [step.finished for step in steps] == [[], [0], [], [], [1], [], [], [2]]
    assert steps[2].scheduled == [(1, 1)]
    assert steps[2].waiting == [2]


@on(batching="static", max_num_seqs=4)
def test_static_admits_nobody_once_it_decodes(engine: Engine) -> None:
    engine.send(20, 4)
    engine.step()
    engine.step()
    engine.send(20, 4)
    assert [engine.step().running for _ in range(2)] == [[0], [0]]
    assert engine.step().running == [1]


@on(batching="static", max_num_seqs=4, max_num_batched_tokens=32)
def test_static_fills_its_batch_over_several_prefill_steps(engine: Engine) -> None:
    for _ in range(3):
        engine.send(30, 2)
    steps = engine.drain()
    assert kinds(steps[:-1]) == ["prefill"] * (len(steps) - 1)
    assert steps[-1].scheduled == [(0, 1), (1, 1), (2, 1)]


@on(batching="static", max_num_seqs=8, usable=8)
def test_static_comes_through_memory_pressure(engine: Engine) -> None:
    for _ in range(6):
        engine.send(30, 40)
    steps = engine.drain()
    assert sum(len(step.sampled) for step in steps) == 6 * 40
    assert "mixed" not in kinds(steps)
