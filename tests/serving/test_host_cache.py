"""The prefix cache's second tier in the host's memory, and prefixes that are never evicted."""

from __future__ import annotations

from serving.host_memory import CacheTier, Move, MoveKind
from tests.serving.driver import Engine, on

OUT, IN = MoveKind.OFFLOAD, MoveKind.FETCH
tiered = {"usable": 6, "block_size": 4, "offload_blocks": 8}


def drained(engine: Engine) -> list[Move]:
    """Everything that is moved until nothing is left to do."""
    moves: list[Move] = []
    while engine.scheduler.has_work:
        plan = engine.schedule()
        moves += plan.moves
        engine.update(plan)
        if engine.config.offload_blocks:
            tier = engine.scheduler.host.tier
            assert sorted([*tier.slots.values(), *tier.free]) == list(range(engine.config.offload_blocks))
            assert not tier.held
    return moves


def ask(engine: Engine, text: str, tokens: int = 16) -> tuple[int, list[Move]]:
    """Prompt tokens found in a cache, and what was moved, when a prompt of `text` is answered alone."""
    request = engine.send(((text, tokens),), 1)
    moves = drained(engine)
    return request.cached_tokens, moves


@on(**tiered)
def test_an_evicted_prefix_is_found_in_the_host_and_copied_back(engine: Engine) -> None:
    assert ask(engine, "a") == (0, [])
    _, moves = ask(engine, "b")
    assert [move.kind for move in moves] == [OUT, OUT]  # two blocks had been free, of six
    hit, moves = ask(engine, "a")
    assert hit == 12  # the last block is computed for its token
    assert [move.kind for move in moves if not move.out] == [IN]
    slots = {move.slot for move in moves if move.kind is IN}
    assert slots


@on(usable=6, block_size=4, but_not="oracle")
def test_without_the_tier_an_evicted_prefix_is_computed_again(engine: Engine) -> None:
    ask(engine, "a")
    ask(engine, "b", 24)
    assert ask(engine, "a") == (0, [])


@on(**tiered)
def test_what_is_fetched_stays_in_the_tier_and_is_not_copied_out_again(engine: Engine) -> None:
    for text in ("a", "b", "a", "b", "a", "b"):
        _, moves = ask(engine, text)
    assert [move for move in moves if move.out] == []
    assert [move.kind for move in moves] == [IN] * len(moves)
    assert moves


@on(**{**tiered, "offload_blocks": 2})
def test_hits_are_not_pushed_out_by_what_is_evicted_for_them(engine: Engine) -> None:
    """The tier is full of the very blocks that are fetched, and the device of others, which are evicted for them."""
    for text in ("a", "b", "a"):
        engine.send(((text, 24),), 1)
        moves = drained(engine)
    fetched = [move.slot for move in moves if move.kind is IN]
    assert len(fetched) == 2
    assert engine.requests[-1].cached_tokens == 8
    # Nothing is written to their slots before they have been read.
    for slot in fetched:
        assert next(move.kind for move in moves if move.slot == slot) is IN


def test_the_tier_drops_what_was_used_longest_ago() -> None:
    moves: list[Move] = []
    tier = CacheTier(10, 2, moves)
    tier.put(b"a", 1)
    tier.put(b"b", 2)
    tier.fetch([b"a"], [3])
    tier.put(b"c", 4)
    assert list(tier.slots) == [b"a", b"c"]
    assert moves == [Move(OUT, 1, 10), Move(OUT, 2, 11), Move(IN, 3, 10), Move(OUT, 4, 11)]


pinned = {"usable": 8, "block_size": 4, "pinned_prefixes": (("system", 8),)}


@on(**pinned)
def test_a_pinned_prefix_outlives_any_number_of_other_prompts(engine: Engine) -> None:
    engine.send((("system", 8), ("a", 4)), 1)
    drained(engine)
    assert engine.scheduler.free_blocks == 6
    for k in range(5):
        ask(engine, f"other{k}", 24)
    late = engine.send((("system", 8), ("b", 4)), 1)
    drained(engine)
    assert late.cached_tokens == 8
    assert engine.scheduler.free_blocks == 6


@on(**{**pinned, "pinned_prefixes": ()}, but_not="oracle")
def test_without_a_pin_they_evict_it(engine: Engine) -> None:
    engine.send((("system", 8), ("a", 4)), 1)
    drained(engine)
    for k in range(5):
        ask(engine, f"other{k}", 24)
    late = engine.send((("system", 8), ("b", 4)), 1)
    drained(engine)
    assert late.cached_tokens == 0


@on(**pinned)
def test_only_whole_blocks_at_the_start_of_a_prompt_are_pinned_and_once(engine: Engine) -> None:
    engine.send((("system", 8), ("a", 4)), 1)  # at once, so that both compute it
    engine.send((("before", 4), ("system", 8)), 1)
    drained(engine)
    assert engine.scheduler.free_blocks == 6
    pool = engine.scheduler.pool
    assert sorted([*pool.queue, *pool.pinned.values()]) == list(range(1, 9))


@on(**pinned)
def test_requests_must_fit_beside_what_is_pinned(engine: Engine) -> None:
    reason = engine.config.why_it_can_never_run(25, 1)
    assert reason == "25 tokens need 7 KV blocks of 4, 6 are usable beside 2 pinned ones"
    assert engine.config.why_it_can_never_run(24, 1) is None
